//! The subjects of statements of VCL: those that end with a refusal, and those by which responses are not stored.

use crate::{
    gate::{self, Concern},
    ledger::Stated as _,
    tree::Statement,
};

/// The subject of a statement, with those in its block.
pub(super) fn concern(statement: &Statement) -> Concern {
    concern_within(statement, false)
}

/// `of_errors` is whether only responses of servers that failed, or fetches that no client waits for, get here.
fn concern_within(statement: &Statement, of_errors: bool) -> Concern {
    let text = statement.shown();
    let of_errors =
        of_errors || ["beresp.status", "is_bgfetch"].iter().any(|part| text.contains(part));
    let own = match (statement.word(0), statement.word(1), statement.word(2)) {
        ("return", _, "abandon" | "fail") if of_errors => Concern::Other,
        ("return", _, "synth" | "error" | "fail" | "abandon") | ("error" | "call", ..) => {
            Concern::Access
        }
        ("return", _, "pass" | "pipe" | "hit_for_miss" | "hit_for_pass" | "miss") => {
            Concern::Storing
        }
        ("set", "resp.status" | "beresp.status" | "obj.status", _) => Concern::Access,
        ("set", "beresp.ttl" | "beresp.uncacheable" | "req.hash_always_miss", _) => {
            Concern::Storing
        }
        ("hash_data", ..) => Concern::Storing,
        (
            "set" | "unset" | "remove" | "return" | "if" | "else" | "elseif" | "elsif" | "elif",
            ..,
        ) => Concern::Other,
        // A call of a module, whose result nobody looks at.
        (verb, ..) => gate::smell(verb),
    };
    let inner = statement.inner().iter().map(|inner| concern_within(inner, of_errors));
    inner.fold(own, Concern::max)
}
