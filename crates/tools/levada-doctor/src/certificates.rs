//! Certificates in files, which nobody but the operator renews.

use std::path::Path;

use crate::Finding;
use levada_tls::acme::CertificateState;

pub(crate) fn check(file: &Path) -> Finding {
    let check = format!("certificate {}", file.display());
    let state = CertificateState::of_file(file);
    let names = state.names.join(", ");
    match (state.alarm(), state.problem) {
        (_, Some(problem)) => Finding::fail(check, problem),
        (None, None) => Finding::ok(check, format!("of {names}: valid for longer than an alarm")),
        (Some(end), None) => Finding::fail(check, format!("of {names}: {end}"))
            .meaning("clients refuse a connection whose certificate has ended")
            .remedy("renew it, then `levada reload`"),
    }
}
