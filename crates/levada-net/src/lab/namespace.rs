//! A network namespace of this process.

use std::{
    fs::File,
    io,
    os::fd::{AsFd as _, AsRawFd as _},
    sync::mpsc::{Sender, channel},
    thread,
};

use rustix::{
    io::Errno,
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe},
};

use super::LabError;

/// A network namespace without a name, empty but for a loopback device that is down.
pub struct Namespace {
    file: File,
    /// To the thread that lives there. Programs are its children, since the kernel ends them with the
    /// thread that started them.
    resident: Sender<Job>,
}

type Job = Box<dyn FnOnce() + Send>;

impl Namespace {
    /// Makes one.
    ///
    /// # Errors
    /// [`LabError::NotRoot`], mostly.
    pub fn new() -> Result<Self, LabError> {
        Self::inhabit(|| {
            // SAFETY: unsafe for FILES only, which would give this thread descriptors of its own;
            // NEWNET leaves them shared.
            #[expect(unsafe_code)]
            let unshared = unsafe { unshare_unsafe(UnshareFlags::NEWNET) };
            unshared.map_err(|error| match error {
                Errno::PERM => LabError::NotRoot,
                other => LabError::System(other.into()),
            })
        })
    }

    /// The one that this process is in.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub fn present() -> Result<Self, LabError> {
        Self::inhabit(|| Ok(()))
    }

    fn inhabit(
        enter: impl FnOnce() -> Result<(), LabError> + Send + 'static,
    ) -> Result<Self, LabError> {
        let (resident, jobs) = channel::<Job>();
        let (told, entered) = channel();
        thread::Builder::new().name("resident".to_owned()).spawn(move || {
            let file = enter().and_then(|()| Ok(File::open("/proc/thread-self/ns/net")?));
            if told.send(file).is_ok() {
                jobs.into_iter().for_each(|job| job());
            }
        })?;
        let file = entered.recv().map_err(|_| io::Error::other("a thread died"))??;
        Ok(Self { file, resident })
    }

    /// Runs `work` within the namespace, on a thread of its own that ends with it. Sockets that it
    /// opens stay there, wherever they are used later.
    ///
    /// # Errors
    /// When the thread cannot be had or cannot enter.
    ///
    /// # Panics
    /// When `work` does.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        thread::scope(|scope| {
            let worker = thread::Builder::new().spawn_scoped(scope, || {
                self.enter()?;
                Ok(work())
            })?;
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// A name that programs know it by, as long as this is there.
    pub(super) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Moves the calling thread here for good.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Runs `work` on the thread that lives here as long as the namespace does.
    pub(super) fn on_resident<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (done, result) = channel();
        let job: Job = Box::new(move || drop(done.send(work())));
        let gone = || io::Error::other("the namespace's thread is gone");
        self.resident.send(job).map_err(|_| gone())?;
        result.recv().map_err(|_| gone())?
    }
}
