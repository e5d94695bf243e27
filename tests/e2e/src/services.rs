//! The services, each a process of its own.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::Context;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;

use crate::{
    process::{Process, free_address, workspace_binary},
    wait,
};

/// The program that has all services.
const PROGRAM: &str = "anteroom";

/// A recipe to start a service, and to restart it in the same way.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// For the log file, and for errors.
    pub name: String,
    /// The command of `anteroom`, as in `watcher`.
    service: &'static str,
    /// The folder of its program, where it is not the workspace's.
    programs: Option<PathBuf>,
    args: Vec<String>,
    env: Vec<(String, String)>,
    admin: SocketAddr,
    logs: PathBuf,
}

impl Recipe {
    /// A recipe for a service (`watcher`, `replica`, `webhook` or `reporter`), whose admin server gets a free port.
    pub fn new(name: &str, service: &'static str, logs: &Path) -> anyhow::Result<Self> {
        let admin = free_address()?;
        Ok(Self {
            name: name.to_owned(),
            service,
            programs: None,
            args: Vec::new(),
            env: Vec::new(),
            admin,
            logs: logs.to_owned(),
        })
    }

    /// The same under another name, with an admin server of its own. A flag that tells one from the
    /// other must be given again: see [`Recipe::arg`].
    pub fn named(&self, name: &str) -> anyhow::Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            admin: free_address()?,
            ..self.clone()
        })
    }

    /// Sets `--flag value`.
    #[must_use]
    pub fn arg(mut self, flag: &str, value: impl std::fmt::Display) -> Self {
        if let Some(at) = self.args.iter().position(|arg| arg == flag) {
            self.args[at + 1] = value.to_string();
            return self;
        }
        self.args.extend([flag.to_owned(), value.to_string()]);
        self
    }

    /// Returns the value of `--flag`, if it was set.
    pub fn value(&self, flag: &str) -> Option<&str> {
        let at = self.args.iter().position(|arg| arg == flag)?;
        self.args.get(at + 1).map(String::as_str)
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        self.env.push((name.to_owned(), value.to_string()));
        self
    }

    /// Sets environment variables.
    #[must_use]
    pub fn envs<N: AsRef<str>>(self, env: impl IntoIterator<Item = (N, String)>) -> Self {
        let env = env.into_iter();
        env.fold(self, |recipe, (name, value)| {
            recipe.env(name.as_ref(), value)
        })
    }

    /// Leaves an environment variable to the service's default.
    #[must_use]
    pub fn without_env(mut self, name: &str) -> Self {
        self.env.retain(|(set, _)| set != name);
        self
    }

    /// Takes the program from this folder; `None`: the workspace's own.
    #[must_use]
    pub fn programs(mut self, folder: Option<&Path>) -> Self {
        self.programs = folder.map(Path::to_owned);
        self
    }

    /// Starts it, without waiting for anything.
    pub fn start(&self) -> anyhow::Result<Running> {
        let mut command = Command::new(match &self.programs {
            Some(folder) => folder.join(PROGRAM),
            None => workspace_binary(PROGRAM)?,
        });
        command
            .arg(self.service)
            .args(&self.args)
            .arg("--admin-address")
            .arg(self.admin.to_string())
            .envs(self.env.iter().cloned());
        let process = Process::start(&self.name, &mut command, &self.logs)?;
        Ok(Running {
            recipe: self.clone(),
            process,
        })
    }
}

/// A service that runs.
#[derive(Debug)]
pub struct Running {
    recipe: Recipe,
    /// Its process.
    pub process: Process,
}

impl Running {
    /// The process's recipe, for a restart after a kill.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// The address of its admin server.
    pub fn admin(&self) -> SocketAddr {
        self.recipe.admin
    }

    /// Returns the address at which a webhook takes reviews.
    pub fn listens_at(&self) -> anyhow::Result<SocketAddr> {
        let address = self.recipe.value("--listen-address");
        Ok(address.context("it is no webhook")?.parse()?)
    }

    /// Waits until `/readyz` answers 200, or it has ended.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        let what = format!("{} to be ready", self.recipe.name);
        wait::until(&what, async || match self.process.check() {
            Ok(()) => self.get("/readyz?verbose").await.map(|_| Ok(())),
            ended => Ok(ended),
        })
        .await
        .flatten()
        .with_context(|| format!("its log ends:\n{}", self.process.log_tail()))
    }

    /// The body of a path of its admin server; any status but 200 is an error that carries it.
    pub async fn get(&self, path: &str) -> anyhow::Result<String> {
        get(self.recipe.admin, path).await
    }

    /// The sum of a metric over all its label sets that contain every one of `labels`, as in
    /// `view="services.v1"`.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> anyhow::Result<f64> {
        let text = self.get("/metrics").await?;
        Ok(text
            .lines()
            .filter_map(|line| line.strip_prefix(name))
            .filter(|rest| rest.starts_with(['{', ' ']) && labels.iter().all(|l| rest.contains(l)))
            .filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok())
            .sum())
    }
}

/// GET over plain HTTP.
pub async fn get(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    exchange(address, http::Method::GET, path, String::new()).await
}

/// One request over plain HTTP; any status but 200 is an error that carries the body.
pub async fn exchange(
    address: SocketAddr,
    method: http::Method,
    path: &str,
    body: String,
) -> anyhow::Result<String> {
    const TIMEOUT: Duration = Duration::from_secs(5);
    let exchange = async {
        let stream = tokio::net::TcpStream::connect(address).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::HOST, address.to_string())
            .body(Full::new(bytes::Bytes::from(body)))?;
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        let body = String::from_utf8_lossy(&body).into_owned();
        anyhow::ensure!(status == http::StatusCode::OK, "HTTP {status}: {body}");
        anyhow::Ok(body)
    };
    tokio::time::timeout(TIMEOUT, exchange)
        .await
        .context("no answer in time")?
}
