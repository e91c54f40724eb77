//! The user that the node runs as, once root has opened its listeners.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

use levada_config::{RunAs, Settings, SettingsReader};
use levada_net::privileges::{self, Account, Kept, Privileges};
use levada_observe::log::FILE_MODE;

/// Why the node cannot become the user of its settings.
#[derive(Debug, thiserror::Error)]
pub enum NoSuchUser {
    /// The system refuses.
    #[error("`user` in [runtime]: {0}")]
    User(io::Error),
    /// The user cannot read the files of the node.
    #[error("the user {user} cannot read the configuration, which a reload needs:\n{reason}")]
    Unreadable {
        /// The user.
        user: String,
        /// The problems.
        reason: String,
    },
}

/// Becomes the user of the settings if this process is root, and says what it may do from now on. The
/// listeners are open; the threads of the runtime, which inherit all this, are still to be started.
///
/// # Errors
/// When the system refuses, or the user cannot read the files.
pub(crate) fn become_user(settings: &Settings, reader: &SettingsReader) -> Result<(), NoSuchUser> {
    let failed = |why: io::Error| NoSuchUser::User(why);
    match &settings.run_as {
        Some(run_as) if privileges::is_root() => {
            change_user(run_as, settings).map_err(failed)?;
            // A reload reads all files again. It must not fail only then.
            let readable = (reader.0)();
            readable
                .map_err(|reason| NoSuchUser::Unreadable { user: run_as.user.clone(), reason })?;
            tracing::info!("{}", Privileges::now().map_err(failed)?);
        }
        Some(run_as) => {
            let now = Privileges::now().map_err(failed)?;
            if now.user != run_as.user {
                tracing::warn!(
                    "{now}: `user` in [runtime] has no effect, because root did not start it"
                );
            } else {
                tracing::info!("{now}");
            }
        }
        None if privileges::is_root() => {
            let now = Privileges::now().map_err(failed)?;
            tracing::info!("{now}: with `user` in [runtime] it would not stay root");
        }
        None => tracing::info!("{}", Privileges::now().map_err(failed)?),
    }
    Ok(())
}

fn change_user(run_as: &RunAs, settings: &Settings) -> io::Result<()> {
    let account = Account::find(&run_as.user, run_as.group.as_deref())?;
    let named = |path: &Path, why: io::Error| {
        io::Error::new(why.kind(), format!("{}: {why}", path.display()))
    };
    if let Some(path) = settings.admin.as_ref().and_then(|admin| admin.listen.path()) {
        account.own(path).map_err(|why| named(path, why))?;
    }
    // The user could not make them below a directory of root. What exists keeps its owner.
    if let Some(disk) = settings.cache.disk.as_ref().filter(|disk| !disk.path.exists()) {
        let made = fs::DirBuilder::new().mode(0o700).create(&disk.path);
        made.and_then(|()| account.own(&disk.path)).map_err(|why| named(&disk.path, why))?;
    }
    for path in settings.access_logs().filter_map(|log| log.target.path()) {
        if !path.exists() {
            let mut new = fs::File::options();
            let made = new.append(true).create_new(true).mode(FILE_MODE).open(path);
            made.and_then(|_| account.own(path)).map_err(|why| named(path, why))?;
        }
    }
    privileges::run_as(&account, Kept { handoff: settings.handoff.is_some() })
}
