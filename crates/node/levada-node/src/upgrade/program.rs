//! The program that runs in the new process.

use std::{
    env,
    ffi::OsString,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::geteuid;

/// A program and its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    name: OsString,
    arguments: Vec<OsString>,
}

/// A program that somebody else could have written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UntrustedProgram {
    /// It is not there.
    #[error("{}: {why}", .path.display())]
    Missing {
        /// The path.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
    /// It is no file.
    #[error("{} is no file", .0.display())]
    NoFile(PathBuf),
    /// Another user owns it or may write to it.
    #[error(
        "other users may write to {}: it and the directories that lead to it must belong to root or to the node's user", .0.display()
    )]
    Writable(PathBuf),
}

/// Variables that are meant for one process.
const OF_ONE_PROCESS: [&str; 5] =
    ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_FDS_FIRST_FD", "WATCHDOG_PID"];

impl Program {
    /// The program of this process, as it was started. A package that was installed meanwhile has put another
    /// file in its place.
    pub(crate) fn of_this_process() -> Self {
        let mut words = env::args_os();
        let name = words.next().unwrap_or_else(|| "levada".into());
        let arguments = words.collect();
        // Some parents pass a name that leads nowhere.
        let leads = Path::new(&name).components().count() == 1 || Path::new(&name).exists();
        let here = env::current_exe().ok().filter(|_| !leads);
        Self { name: here.map_or(name, PathBuf::into_os_string), arguments }
    }

    /// Another program with the same arguments.
    ///
    /// # Errors
    /// When others than root and the node's user could have written it: a person who may give orders to
    /// a node must not have any program run.
    pub(crate) fn at(&self, path: &Path) -> Result<Self, UntrustedProgram> {
        let missing = |why| UntrustedProgram::Missing { path: path.to_owned(), why };
        let real = fs::canonicalize(path).map_err(missing)?;
        if !fs::metadata(&real).map_err(missing)?.is_file() {
            return Err(UntrustedProgram::NoFile(real));
        }
        let writable = real.ancestors().find(|part| !is_closed(part));
        match writable {
            Some(part) => Err(UntrustedProgram::Writable(part.to_owned())),
            None => Ok(Self { name: real.into_os_string(), ..self.clone() }),
        }
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.name);
        command.args(&self.arguments);
        for name in OF_ONE_PROCESS {
            command.env_remove(name);
        }
        command
    }
}

/// Whether only root and this user can change a file, or what a directory leads to.
fn is_closed(path: &Path) -> bool {
    const OTHERS_WRITE: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    fs::metadata(path).is_ok_and(|found| {
        let ours = found.uid() == 0 || found.uid() == geteuid().as_raw();
        // Of a sticky directory, others cannot replace an entry.
        let open = found.mode() & OTHERS_WRITE != 0;
        ours && (!open || found.is_dir() && found.mode() & STICKY != 0)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn allow(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn program_that_others_could_have_written_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("levada");
        fs::write(&path, "").unwrap();
        allow(&path, 0o755);
        let program = Program::of_this_process();
        assert!(program.at(&path).is_ok());
        allow(&path, 0o775);
        assert!(matches!(program.at(&path), Err(UntrustedProgram::Writable(_))));
        allow(&path, 0o755);
        allow(directory.path(), 0o777);
        assert!(matches!(program.at(&path), Err(UntrustedProgram::Writable(_))));
        allow(directory.path(), 0o1777);
        assert!(program.at(&path).is_ok());
        assert!(matches!(program.at(directory.path()), Err(UntrustedProgram::NoFile(_))));
        let missing = program.at(&directory.path().join("none"));
        assert!(matches!(missing, Err(UntrustedProgram::Missing { .. })));
    }
}
