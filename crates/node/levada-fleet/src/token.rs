//! Tokens: where the state is, the fleet's key, and a right, in one text.
//!
//! ```text
//! levada1.<base64 of JSON: where, id, secret, key>
//! ```

use std::{fmt, str::FromStr, sync::Arc};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use levada_discovery::{ClientTls, Endpoint, EtcdSource, EtcdUser};
use serde::{Deserialize, Serialize};

use crate::seal::{FleetKey, sha256};

/// A token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The fleet.
    pub fleet: String,
    /// Its identifier.
    pub id: String,
    /// Its secret.
    pub secret: String,
    /// The fleet's key, which opens what the state carries.
    key: String,
    /// The place of the state.
    #[serde(rename = "at")]
    pub place: StatePlace,
}

/// Where a state is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatePlace {
    /// A node keeps it.
    Node {
        /// The address at which it answers.
        address: std::net::SocketAddr,
        /// SHA-256 of its certificate, in hexadecimal digits.
        certificate: String,
    },
    /// It is in etcd.
    Etcd {
        /// The endpoints: URLs without a path.
        endpoints: Vec<String>,
        /// The user and the password, where etcd asks for them.
        user: Option<(String, String)>,
    },
}

/// A text that is no token.
#[derive(Debug, thiserror::Error)]
#[error("this is no token of a fleet: one begins with {START} and is copied as a whole")]
pub struct NoToken;

/// The beginning of all tokens.
const START: &str = "levada1.";

impl Token {
    /// A token with a new secret.
    pub fn new(fleet: &str, id: &str, key: &FleetKey, place: &StatePlace) -> Self {
        Self {
            fleet: fleet.to_owned(),
            id: id.to_owned(),
            secret: crate::seal::random_text::<24>(),
            key: key.text(),
            place: place.clone(),
        }
    }

    /// Whether it is of the same fleet as another one.
    pub(crate) fn is_of_fleet(&self, other: &Self) -> bool {
        let digest = |token: &Self| sha256(token.key.as_bytes());
        self.fleet == other.fleet && digest(self) == digest(other)
    }

    /// The same, with the place of another one.
    pub(crate) fn placed_as(self, other: &Self) -> Self {
        Self { place: other.place.clone(), ..self }
    }

    /// The fleet's key.
    ///
    /// # Errors
    /// If the token was changed.
    pub fn key(&self) -> Result<FleetKey, NoToken> {
        FleetKey::read(&self.key).ok_or(NoToken)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("fleet", &self.fleet).field("id", &self.id).finish()
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = serde_json::to_vec(self).map_err(|_| fmt::Error)?;
        write!(f, "{START}{}", BASE64_URL_SAFE_NO_PAD.encode(json))
    }
}

impl FromStr for Token {
    type Err = NoToken;

    fn from_str(text: &str) -> Result<Self, NoToken> {
        let encoded = text.trim().strip_prefix(START).ok_or(NoToken)?;
        let json = BASE64_URL_SAFE_NO_PAD.decode(encoded).map_err(|_| NoToken)?;
        let token: Self = serde_json::from_slice(&json).map_err(|_| NoToken)?;
        token.key()?;
        Ok(token)
    }
}

/// The place in etcd of the fleet `name`.
///
/// # Errors
/// With the endpoint that is no URL of etcd.
pub(crate) fn etcd_source(
    name: &str,
    endpoints: &[String],
    user: &Option<(String, String)>,
) -> Result<EtcdSource, String> {
    let endpoints = endpoints.iter().map(|url| endpoint(url).ok_or_else(|| url.clone()));
    let user = user.as_ref().map(|(name, password)| EtcdUser {
        name: name.as_str().into(),
        password: password.as_str().into(),
    });
    Ok(EtcdSource {
        endpoints: endpoints.collect::<Result<_, _>>()?,
        prefix: Arc::from(format!("/levada/fleets/{name}/")),
        user,
        tls: ClientTls::default(),
    })
}

fn endpoint(url: &str) -> Option<Endpoint> {
    let uri: http::Uri = url.parse().ok()?;
    let tls = match uri.scheme_str()? {
        "https" => true,
        "http" => false,
        _ => return None,
    };
    let host = uri.host()?.trim_matches(['[', ']']).into();
    let has_path = !matches!(uri.path(), "" | "/");
    (!has_path).then(|| Endpoint { tls, host, port: uri.port_u16().unwrap_or(2379) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_read_as_it_was_written() {
        let endpoints = vec!["http://10.0.0.5:2379".to_owned()];
        let place = StatePlace::Etcd { endpoints, user: None };
        let token = Token::new("web", "t1", &FleetKey::random(), &place);
        let text = token.to_string();
        assert_eq!(text.parse::<Token>().unwrap(), token);
        assert!(!format!("{token:?}").contains(&token.secret));
        for wrong in ["", "levada1.", "levada1.e30", &text[..text.len() - 4], &text[3..]] {
            assert!(wrong.parse::<Token>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn endpoints_of_etcd_are_urls_without_a_path() {
        let read = |url: &str| endpoint(url).map(|endpoint| endpoint.to_string());
        assert_eq!(read("http://10.0.0.5"), Some("http://10.0.0.5:2379".to_owned()));
        assert_eq!(read("https://[::1]:2380/"), Some("https://[::1]:2380".to_owned()));
        for wrong in ["10.0.0.5:2379", "ftp://a", "http://a/b", ""] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
