//! `[log]` and `[site.log]`: access logs.

use std::time::Duration;

use levada_observe::redact::SECRET_ARGUMENTS;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::Time;

/// An access log.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// `"off"`, `"stdout"`, a file or a named pipe to which lines are appended, `"syslog"` for the daemon of
    /// this machine, or `"syslog:udp://HOST:PORT"`, `"syslog:tcp://HOST:PORT"`, `"syslog:unix:PATH"`, or
    /// `"otlp"` for the collector of `[telemetry]`.
    #[schemars(length(min = 1))]
    pub access: String,
    /// The form of a line: `"combined"`, `"common"`, `"json"`, or a string with variables such as
    /// `$remote_addr`.
    #[schemars(length(min = 1))]
    pub format: String,
    /// The facility of lines for syslog.
    #[schemars(extend("examples" = ["daemon"]))]
    pub facility: String,
    /// The part of requests whose lines are written, chosen at random. Lines of failures and of slow requests
    /// are always written.
    #[schemars(range(min = 0, max = 1))]
    pub sample: f64,
    /// With `sample`: requests that take this long are always written.
    #[schemars(extend("x-maximum" = "1h"))]
    pub slow: Time,
    /// Query arguments whose values lines and spans leave out, in upper or lower case. A list that is stated
    /// stands in the place of the default one.
    pub redact: Vec<String>,
}

impl Default for Log {
    /// On standard output, where containers and service managers pick it up.
    fn default() -> Self {
        Self {
            access: "stdout".to_owned(),
            format: "combined".to_owned(),
            facility: "local7".to_owned(),
            sample: 1.0,
            slow: Time(Duration::from_secs(1)),
            redact: SECRET_ARGUMENTS.map(str::to_owned).into(),
        }
    }
}
