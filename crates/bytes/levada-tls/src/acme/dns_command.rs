//! The operator's command that makes and removes records in DNS.
//!
//! ```text
//! COMMAND present _acme-challenge.www.example.com VALUE
//! COMMAND cleanup _acme-challenge.www.example.com VALUE
//! ```

use std::process::Stdio;

use levada_types::format_duration;
use tokio::{io::AsyncReadExt as _, process::Command};

use crate::acme::DnsCommand;

/// The part of the command's output that an error quotes.
const QUOTED: u64 = 2_000;

/// A record of type TXT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DnsRecord {
    /// The name that it proves, without `*.`.
    pub(crate) domain: String,
    pub(crate) value: String,
}

impl DnsRecord {
    fn name(&self) -> String {
        format!("_acme-challenge.{}", self.domain)
    }
}

impl DnsCommand {
    /// Makes a record.
    pub(crate) async fn present(&self, record: &DnsRecord) -> Result<(), String> {
        self.run("present", record).await
    }

    /// Removes a record. Nothing depends on it.
    pub(crate) async fn clean_up(&self, record: &DnsRecord) {
        if let Err(error) = self.run("cleanup", record).await {
            tracing::warn!(%error, record = record.name(), "a record of a proof stays in DNS");
        }
    }

    async fn run(&self, action: &str, record: &DnsRecord) -> Result<(), String> {
        let shown = || format!("`{} {action}`", self.command.join(" "));
        let (program, arguments) = self.command.split_first().ok_or("there is no DNS command")?;
        let name = record.name();
        let child = Command::new(program)
            .args(arguments)
            .args([action, &name, &record.value])
            .env("LEVADA_ACME_ACTION", action)
            .env("LEVADA_ACME_DOMAIN", &record.domain)
            .env("LEVADA_ACME_RECORD", &name)
            .env("LEVADA_ACME_VALUE", &record.value)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let mut child = child.map_err(|error| format!("{} cannot be started: {error}", shown()))?;
        let said = child.stderr.take();
        let running = async {
            let mut text = Vec::new();
            if let Some(said) = said {
                let mut said = said.take(QUOTED);
                let _ = said.read_to_end(&mut text).await;
                // More than that is read as well: a command that writes must not wait.
                let _ = tokio::io::copy(&mut said.into_inner(), &mut tokio::io::sink()).await;
            }
            (child.wait().await, String::from_utf8_lossy(&text).trim().to_owned())
        };
        match tokio::time::timeout(self.timeout, running).await {
            Err(_) => {
                Err(format!("{} takes longer than {}", shown(), format_duration(self.timeout)))
            }
            Ok((Err(error), _)) => Err(format!("{}: {error}", shown())),
            Ok((Ok(status), _)) if status.success() => Ok(()),
            Ok((Ok(status), text)) if text.is_empty() => Err(format!("{}: {status}", shown())),
            Ok((Ok(status), text)) => Err(format!("{}: {status}: {text}", shown())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn shell(script: &str) -> DnsCommand {
        DnsCommand {
            command: ["sh", "-c", script, "hook"].map(str::to_owned).to_vec(),
            timeout: Duration::from_secs(20),
            wait: Duration::ZERO,
        }
    }

    fn record() -> DnsRecord {
        DnsRecord { domain: "a.example".to_owned(), value: "xyz".to_owned() }
    }

    #[tokio::test]
    async fn command_gets_the_record_by_arguments_and_environment() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("said");
        let script = format!(
            "echo \"$@\" $LEVADA_ACME_ACTION $LEVADA_ACME_DOMAIN $LEVADA_ACME_RECORD \
             $LEVADA_ACME_VALUE >> {}",
            file.display()
        );
        shell(&script).present(&record()).await.unwrap();
        shell(&script).clean_up(&record()).await;
        let line = |action| {
            let name = "_acme-challenge.a.example";
            format!("{action} {name} xyz {action} a.example {name} xyz\n")
        };
        let said = std::fs::read_to_string(file).unwrap();
        assert_eq!(said, line("present") + &line("cleanup"));
    }

    #[tokio::test]
    async fn command_that_fails_is_quoted() {
        let error = shell("echo no such zone >&2; exit 3").present(&record()).await.unwrap_err();
        assert!(error.contains("exit status: 3: no such zone"), "{error}");
        let none = DnsCommand { command: vec!["/no/such/command".to_owned()], ..shell("") };
        let error = none.present(&record()).await.unwrap_err();
        assert!(error.contains("`/no/such/command present` cannot be started"), "{error}");
        let much = "yes 'a long story' | head -c 1000000 >&2; exit 1";
        let error = shell(much).present(&record()).await.unwrap_err();
        assert!(error.len() < 3_000, "{}", error.len());
    }

    #[tokio::test]
    async fn command_that_does_not_end_is_ended() {
        let slow = DnsCommand { timeout: Duration::from_millis(200), ..shell("exec sleep 1000") };
        let error = slow.present(&record()).await.unwrap_err();
        assert!(error.contains("takes longer than"), "{error}");
    }
}
