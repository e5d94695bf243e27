//! A child process that never outlives its handle, with its output in a file.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, bail};
use parking_lot::Mutex;
use rand::Rng;
use tokio::task::JoinHandle;

/// The interval at which memory is looked at.
const PEAK_LOOKS_APART: Duration = Duration::from_millis(20);

/// Lines of a log that an error shows.
const LOG_LINES_SHOWN: usize = 30;

/// A running program.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`, with both outputs appended to `<logs>/<name>.log`.
    pub fn start(name: &str, command: &mut Command, logs: &Path) -> anyhow::Result<Self> {
        let log = logs.join(format!("{name}.log"));
        let out = File::options().create(true).append(true).open(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("cannot start {name}: {command:?}"))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the file of its output.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// An error, with the end of its log, if it has ended.
    pub fn check(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!(
                "{} ended with {status}; its log ends:\n{}",
                self.name,
                self.log_tail()
            );
        }
        Ok(())
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        tail(&self.log)
    }

    /// `kill -9`, and waits until it is gone: what it listened on is free then.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends SIGTERM, and waits until it has ended by itself.
    pub async fn terminate(mut self) -> anyhow::Result<ExitStatus> {
        self.signal("TERM")?;
        let name = self.name.clone();
        crate::wait::until(&format!("{name} to end after SIGTERM"), async || match self
            .child
            .try_wait()
        {
            Ok(Some(status)) => Ok(status),
            Ok(None) => Err("still running".to_owned()),
            Err(error) => Err(error.to_string()),
        })
        .await
    }

    /// Sends a signal by name, as in `STOP`.
    pub fn signal(&self, signal: &str) -> anyhow::Result<()> {
        let sent = Command::new("kill")
            .args([&format!("-{signal}"), &self.id().to_string()])
            .status()?;
        if !sent.success() {
            bail!("cannot send {signal} to {}", self.name);
        }
        Ok(())
    }

    /// Resident memory in bytes, as the kernel counts it.
    pub fn rss_bytes(&self) -> anyhow::Result<u64> {
        status_bytes(self.id(), RSS)
    }

    /// Resident memory that the kernel cannot take back, in bytes: without the pages of the program's file, which all
    /// processes of a machine share.
    pub fn own_bytes(&self) -> anyhow::Result<u64> {
        status_bytes(self.id(), OWN)
    }

    /// CPU time so far in milliseconds, user and system.
    pub fn cpu_ms(&self) -> anyhow::Result<f64> {
        cpu_ms_of(self.id())
    }

    /// Returns [`Process::cpu_ms`] to the nanosecond where the kernel tells that of each thread. Of threads
    /// that have ended only the coarse sum knows: what is missing is less than its unit, 10 ms.
    pub fn cpu_ns(&self) -> anyhow::Result<u64> {
        let coarse = (self.cpu_ms()? * 1e6) as u64;
        let threads = fs::read_dir(format!("/proc/{}/task", self.id()))?.flatten();
        let of_thread = |task: fs::DirEntry| {
            // A thread may end between the two looks.
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        };
        Ok(threads.filter_map(of_thread).sum::<u64>().max(coarse))
    }
}

/// The last lines of a log; none of one that cannot be read.
pub(crate) fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
}

/// The kernel's unit in /proc, the same on every Linux that Rust's standard library supports.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU time so far of any process, as [`Process::cpu_ms`].
pub fn cpu_ms_of(id: u32) -> anyhow::Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
    // The second field is the name in parentheses, and may hold anything.
    let (_, rest) = stat.rsplit_once(')').context("/proc/PID/stat")?;
    let ticks = |field: usize| -> anyhow::Result<f64> {
        let field = rest.split_whitespace().nth(field - 3);
        Ok(field.context("a short /proc/PID/stat")?.parse()?)
    };
    Ok((ticks(14)? + ticks(15)?) * 1000.0 / TICKS_PER_SECOND)
}

/// CPU time so far of the whole machine in milliseconds, whoever took it.
pub fn cpu_ms_of_all() -> anyhow::Result<f64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    let ticks = line.context("/proc/stat")?.split_whitespace();
    let ticks: Vec<f64> = ticks.map(str::parse).collect::<Result<_, _>>()?;
    // User, nice, system; idle and waiting; interrupts, soft interrupts, stolen. The rest is in these.
    let busy = ticks.iter().take(3).chain(ticks.iter().skip(5).take(3));
    Ok(busy.sum::<f64>() * 1000.0 / TICKS_PER_SECOND)
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only where it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Below where systems take the ports of outgoing connections from (32768 on Linux): a port that is
/// free when it is picked is still free when its process listens on it, however many connections
/// are made meanwhile.
const PORTS: std::ops::Range<u16> = 16_384..32_768;

/// Returns a free loopback address that no caller in this process was given before.
pub fn free_address() -> anyhow::Result<SocketAddr> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut given = GIVEN.lock();
    let mut rng = rand::rng();
    for _ in PORTS {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, rng.random_range(PORTS)));
        if TcpListener::bind(address).is_ok() && given.insert(address.port()) {
            return Ok(address);
        }
    }
    bail!("no port of {PORTS:?} is free")
}

/// Fields of `/proc/ID/status`.
const RSS: &str = "VmRSS:";
const OWN: &str = "RssAnon:";

fn status_bytes(id: u32, field: &'static str) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line
        .and_then(|rest| rest.split_whitespace().next())
        .context(field)?;
    Ok(kib.parse::<u64>()? * 1024)
}

/// The most memory that a process took while it was looked at.
#[derive(Debug)]
pub struct Peak {
    most: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Peak {
    /// Looks from now on, many times a second. Of a process that has ended nothing is known.
    pub fn watch(process: &Process) -> Self {
        Self::of(process, RSS)
    }

    /// Looks at [`Process::own_bytes`] alone.
    pub fn watch_own(process: &Process) -> Self {
        Self::of(process, OWN)
    }

    fn of(process: &Process, field: &'static str) -> Self {
        let (id, most) = (process.id(), Arc::<AtomicU64>::default());
        let seen = Arc::clone(&most);
        let task = tokio::spawn(async move {
            loop {
                let bytes = status_bytes(id, field).unwrap_or_default();
                seen.fetch_max(bytes, Ordering::Relaxed);
                tokio::time::sleep(PEAK_LOOKS_APART).await;
            }
        });
        Self { most, task }
    }

    /// The most so far, in bytes.
    pub fn bytes(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }
}

impl Drop for Peak {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The folder of the workspace's programs, if not beside the caller.
static BINARIES: OnceLock<PathBuf> = OnceLock::new();

/// Takes the workspace's programs from this folder from now on. Only the first call counts.
///
/// # Errors
/// There is no such folder.
pub fn use_binaries_in(folder: &Path) -> anyhow::Result<()> {
    let folder = folder
        .canonicalize()
        .with_context(|| format!("no folder of programs: {}", folder.display()))?;
    BINARIES.get_or_init(|| folder);
    Ok(())
}

/// A program of this workspace: of the folder that [`use_binaries_in`] named, else built by the same
/// profile as the caller.
pub fn workspace_binary(name: &str) -> anyhow::Result<PathBuf> {
    let folder = match BINARIES.get() {
        Some(folder) => folder.clone(),
        None => {
            let mut folder = std::env::current_exe()?;
            folder.pop();
            if folder.ends_with("deps") {
                folder.pop();
            }
            folder
        }
    };
    let binary = folder.join(name);
    if !binary.exists() {
        bail!(
            "{} is not built: run `cargo xtask test`, or `cargo build --workspace`",
            binary.display()
        );
    }
    Ok(binary)
}

/// Returns the folder that cargo builds to.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
        PathBuf::from,
    )
}

/// A program built by `cargo xtask parts`.
pub fn real_part(name: &str) -> anyhow::Result<PathBuf> {
    let folder = match std::env::var_os("ANTEROOM_REAL_PARTS") {
        Some(folder) => PathBuf::from(folder),
        None => target().join("real-parts"),
    };
    let binary = folder.join(name);
    if !binary.exists() {
        bail!("{} is not built: run `cargo xtask parts`", binary.display());
    }
    Ok(binary)
}
