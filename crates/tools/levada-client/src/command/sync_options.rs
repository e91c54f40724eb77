//! Options of `levada sync` with the names and the meaning that they have in rsync.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, ValueEnum};
use levada_fetch::{Algorithm, manifest::Extras};

use super::option::text_of;
use crate::FilterRule;

/// The rules of the filter, in the order of the command line: it counts over all of these options.
#[derive(Debug, Default)]
pub struct FilterArgs {
    options: Vec<FilterOption>,
}

#[derive(Debug)]
struct FilterOption {
    include: bool,
    is_file: bool,
    value: String,
}

impl FilterArgs {
    /// The rules; those of files are read.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn rules(&self) -> anyhow::Result<Vec<FilterRule>> {
        let mut rules = Vec::new();
        for FilterOption { include, is_file, value } in &self.options {
            if *is_file {
                let text = text_of(value.as_ref())?;
                rules.extend(FilterRule::of_file(&text, *include));
            } else {
                rules.push(FilterRule { include: *include, pattern: value.clone() });
            }
        }
        Ok(rules)
    }
}

impl FromArgMatches for FilterArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut options = Vec::new();
        for (name, include, is_file, ..) in OPTIONS {
            let values = matches.get_many::<String>(name).into_iter().flatten();
            let places = matches.indices_of(name).into_iter().flatten();
            options.extend(places.zip(values).map(|(place, value)| {
                (place, FilterOption { include, is_file, value: value.clone() })
            }));
        }
        options.sort_by_key(|(place, _)| *place);
        Ok(Self { options: options.into_iter().map(|(_, option)| option).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for FilterArgs {
    fn augment_args(command: Command) -> Command {
        OPTIONS.iter().fold(command, |command, (name, _, is_file, help)| {
            let value = if *is_file { "FILE" } else { "PATTERN" };
            let arg = Arg::new(*name).long(*name).value_name(value).help(*help);
            command.arg(arg.action(ArgAction::Append))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// The name of each, whether it includes, whether its value is a file, and its help.
const OPTIONS: [(&str, bool, bool, &str); 4] = [
    (
        "exclude",
        false,
        false,
        "Excludes paths, as in rsync: the first --exclude or --include that matches decides. With \
         --delete they stay",
    ),
    ("include", true, false, "Includes paths that a later --exclude would exclude"),
    (
        "exclude-from",
        false,
        true,
        "Reads patterns to exclude from a file, one per line; `-` is standard input",
    ),
    (
        "include-from",
        true,
        true,
        "Reads patterns to include from a file, one per line; `-` is standard input",
    ),
];

/// The options for more than content, permissions and time, recorded or taken over, with the names of rsync.
#[derive(Args, Debug)]
#[command(next_help_heading = "Recording and taking over")]
pub struct ExtraArgs {
    /// The same as -o -g; a pull by others than root leaves both out.
    #[arg(short, long)]
    archive: bool,
    /// Owners. Only root can set them.
    #[arg(short, long)]
    owner: bool,
    /// Groups.
    #[arg(short, long)]
    group: bool,
    /// Owners and groups by number, not by name.
    #[arg(long)]
    pub numeric_ids: bool,
    /// Hard links.
    #[arg(short = 'H', long)]
    hard_links: bool,
    /// ACLs.
    #[arg(short = 'A', long)]
    acls: bool,
    /// Extended attributes of users.
    #[arg(short = 'X', long)]
    xattrs: bool,
}

impl ExtraArgs {
    /// The extras that a publisher records.
    pub fn recorded(&self) -> Extras {
        self.extras(self.archive)
    }

    /// The extras that a destination takes over: only root can give files to others.
    pub fn taken_over(&self) -> Extras {
        self.extras(self.archive && rustix::process::geteuid().is_root())
    }

    fn extras(&self, archive: bool) -> Extras {
        Extras {
            hard_links: self.hard_links,
            owner: self.owner || archive,
            group: self.group || archive,
            acls: self.acls,
            xattrs: self.xattrs,
        }
    }
}

/// The digest of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DigestName {
    /// SHA-256.
    #[value(name = "sha-256")]
    Sha256,
    /// MD5, as in the paper.
    Md5,
}

impl DigestName {
    /// The algorithm of this name.
    pub const fn algorithm(self) -> Algorithm {
        match self {
            Self::Sha256 => Algorithm::Sha256,
            Self::Md5 => Algorithm::Md5,
        }
    }
}
