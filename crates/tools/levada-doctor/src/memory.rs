//! The memory of the machine or of the control group, compared with the bound of a node.

use levada_net::memory;
use levada_types::ByteSize;

use crate::{Finding, Needs};

pub(crate) fn check(needs: &Needs) -> Finding {
    match memory::available() {
        None => Finding::skip("memory", "the system does not say how much there is"),
        Some(available) => judge(available, needs.memory),
    }
}

fn judge(available: u64, bound: Option<u64>) -> Finding {
    let size = ByteSize(available);
    let three_quarters = ByteSize(available / 4 * 3);
    let Some(bound) = bound else {
        let seen = format!("{size}; `limits.memory` is {three_quarters} by default");
        return Finding::ok("memory", seen);
    };
    let seen = format!("{size}, `limits.memory` is {}", ByteSize(bound));
    let remedy =
        format!("memory = \"{three_quarters}\" in [limits], or a higher limit of the group");
    if bound > available {
        let meaning = "the system kills the node before it reaches its own bound";
        return Finding::fail("memory", seen).meaning(meaning).remedy(remedy);
    }
    if bound > available / 10 * 9 {
        let meaning = "less than a tenth is left for buffers of sockets, which count too, and for other programs";
        return Finding::warn("memory", seen).meaning(meaning).remedy(remedy);
    }
    Finding::ok("memory", seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    #[test]
    fn bound_is_compared_with_what_there_is() {
        let judged = |bound| judge(4 << 30, bound).level;
        assert_eq!(judged(None), Level::Ok);
        assert_eq!(judged(Some(3 << 30)), Level::Ok);
        assert_eq!(judged(Some((4 << 30) - (100 << 20))), Level::Warn);
        assert_eq!(judged(Some(5 << 30)), Level::Fail);
    }
}
