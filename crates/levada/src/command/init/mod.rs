//! `levada init`: a first configuration, by three questions.

mod answers;
mod dialogue;
mod template;

use std::{
    fs::{self, File},
    io::{self, IsTerminal as _, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use clap::Args;
use levada_client::command::CommandStatus;
use levada_types::AdminAddress;

use self::answers::{Answers, Content, Door};

/// Writes a commented configuration by asking three questions.
///
/// They are: what to serve, under which host names, and at which port. Options answer questions
/// beforehand. Without a terminal, answers come from standard input, and those that are missing have their
/// defaults.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InitArgs {
    /// Serves what this web server has: a URL without a path.
    #[arg(long, value_name = "URL", conflicts_with = "files")]
    origin: Option<String>,
    /// Serves the files of this directory.
    #[arg(long, value_name = "DIRECTORY")]
    files: Option<String>,
    /// A host name of the site, `*.example.com`, or `*` for all; may be repeated.
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// The port for clients, or an address and a port.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The certificate's file (PEM), for HTTPS.
    #[arg(long, value_name = "FILE", requires_all = ["key", "listen"])]
    certificate: Option<PathBuf>,
    /// The certificate's private key (PEM).
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// The address for operators: an IP address and a port, or unix: and a path.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9180")]
    admin: AdminAddress,
    /// The file to write. It must not exist yet.
    #[arg(short, long, value_name = "FILE", default_value = "levada.toml")]
    output: PathBuf,
}

/// Asks what the options leave open, and writes the file.
///
/// # Errors
/// If an option is wrong, the input ends before the first answer, or the file exists already.
pub(crate) fn run(args: &InitArgs) -> anyhow::Result<CommandStatus> {
    let file = &args.output;
    if fs::symlink_metadata(file).is_ok() {
        bail!("{} exists already: --output names another file", file.display());
    }
    let answers = match given(args)? {
        Given { content: Some(content), hosts, door } if !io::stdin().is_terminal() => Answers {
            content,
            hosts: hosts.map_or_else(|| answers::hosts(""), Ok).map_err(anyhow::Error::msg)?,
            door: door.map_or_else(|| answers::door(""), Ok).map_err(anyhow::Error::msg)?,
        },
        given => asked(given)?,
    };
    let text = template::text(&answers, &args.admin, file);
    if let Some(problem) = answers::problem(&text) {
        bail!("{problem}");
    }
    write(file, &text)?;
    print!("{}", template::next_steps(&answers, file));
    Ok(CommandStatus::Success)
}

/// The answers that options give.
struct Given {
    content: Option<Content>,
    hosts: Option<Vec<String>>,
    door: Option<Door>,
}

fn given(args: &InitArgs) -> anyhow::Result<Given> {
    let content = match (&args.origin, &args.files) {
        (Some(url), _) => Some(answers::origin(url).map_err(wrong("--origin"))?),
        (None, Some(directory)) => Some(answers::files(directory).map_err(wrong("--files"))?),
        (None, None) => None,
    };
    let hosts = match &args.host[..] {
        [] => None,
        hosts => {
            let names = hosts.iter().map(|name| answers::one_host(name));
            let names: Vec<_> = names.collect::<Result<_, _>>().map_err(wrong("--host"))?;
            Some(answers::hosts(&names.join(" ")).map_err(wrong("--host"))?)
        }
    };
    let door = match &args.listen {
        Some(listen) => {
            let tls = args.certificate.clone().zip(args.key.clone());
            Some(answers::door_with(listen, tls).map_err(wrong("--listen"))?)
        }
        None => None,
    };
    Ok(Given { content, hosts, door })
}

fn wrong(option: &'static str) -> impl Fn(String) -> anyhow::Error {
    move |reason| anyhow::anyhow!("{option}: {reason}")
}

/// The answers of the user to the questions that are open.
fn asked(given: Given) -> anyhow::Result<Answers> {
    let (mut input, mut output) = (io::stdin().lock(), io::stdout());
    let mut dialogue = dialogue::Dialogue { input: &mut input, output: &mut output };
    let content = match given.content {
        Some(content) => content,
        None => dialogue
            .ask(WHAT, None, answers::content)?
            .context("nothing says what to serve: give --origin URL or --files DIRECTORY")?,
    };
    let hosts = match given.hosts {
        Some(hosts) => hosts,
        None => dialogue.ask(HOSTS, Some("*"), answers::hosts)?.context(ENDED)?,
    };
    let door = match given.door {
        Some(door) => door,
        None => dialogue.ask(PORT, Some("8080"), answers::door)?.context(ENDED)?,
    };
    Ok(Answers { content, hosts, door })
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    // A file that has come meanwhile stays as it is.
    let file = File::options().write(true).create_new(true).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))
}

const WHAT: &str =
    "What is to be served? The URL of a web server, such as http://127.0.0.1:9000, or a directory.";
const HOSTS: &str = "Under which host names? Several with spaces between them; * is every name.";
const PORT: &str = "At which port? A port or an address such as 127.0.0.1:8080; for HTTPS with the \
                    files of a certificate and its key: 443 cdn.pem cdn.key";
const ENDED: &str = "the input ended before the last answer";

const EXAMPLES: &str = "\
Examples:
  levada init
  levada init --origin http://127.0.0.1:9000
  levada init --files /srv/www --host www.example.com --listen 0.0.0.0:80
  levada init --origin https://example.com --listen 443 --certificate cdn.pem --key cdn.key

Exit codes:
  0  the file is written, and levada run -c FILE can use it
  2  it is not: the file exists already, or an answer is wrong or missing";
