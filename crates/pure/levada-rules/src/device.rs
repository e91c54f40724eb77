//! The class of a client's device, by its `User-Agent`.

use http::{HeaderMap, header::USER_AGENT};

/// A class of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceClass {
    /// A telephone.
    Mobile,
    /// A tablet.
    Tablet,
    /// Everything else, robots and requests without `User-Agent` too.
    Desktop,
}

impl DeviceClass {
    /// The class of the client with these fields. The first rule that holds counts:
    ///
    /// 1. `iPad`, `Tablet`, `Kindle` or `Silk/` in the field, or `Android` without `Mobile`: a tablet;
    /// 2. `Mobi`, `iPhone` or `iPod`: mobile;
    /// 3. else: a desktop.
    pub fn of(headers: &HeaderMap) -> Self {
        let agent = headers.get(USER_AGENT).map_or(&b""[..], |value| value.as_bytes());
        let has = |text: &str| agent.windows(text.len()).any(|part| part == text.as_bytes());
        let is_tablet = ["iPad", "Tablet", "Kindle", "Silk/"].iter().any(|text| has(text));
        if is_tablet || (has("Android") && !has("Mobile")) {
            Self::Tablet
        } else if ["Mobi", "iPhone", "iPod"].iter().any(|text| has(text)) {
            Self::Mobile
        } else {
            Self::Desktop
        }
    }

    /// As it stands in keys.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mobile => "mobile",
            Self::Tablet => "tablet",
            Self::Desktop => "desktop",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_told_apart_by_what_they_call_themselves() {
        use DeviceClass::{Desktop, Mobile, Tablet};
        for (agent, class) in [
            ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", Desktop),
            ("Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Mobile/15E148", Mobile),
            ("Mozilla/5.0 (iPad; CPU OS 18_0 like Mac OS X) Mobile/15E148 Safari/604.1", Tablet),
            ("Mozilla/5.0 (Linux; Android 15; Pixel 9) Chrome/130.0 Mobile Safari/537.36", Mobile),
            ("Mozilla/5.0 (Linux; Android 15; SM-X910) Chrome/130.0 Safari/537.36", Tablet),
            ("Mozilla/5.0 (Android 15; Mobile; rv:140.0) Gecko/140.0 Firefox/140.0", Mobile),
            ("curl/8.9", Desktop),
        ] {
            let headers = [(USER_AGENT, agent.parse().unwrap())].into_iter().collect();
            assert_eq!(DeviceClass::of(&headers), class, "{agent}");
        }
        assert_eq!(DeviceClass::of(&HeaderMap::new()), Desktop);
    }
}
