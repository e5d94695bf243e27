//! A network of the test's own, in which what programs send to a port, or from it, goes nowhere.
//!
//! The kernel drops each packet whose route is a *blackhole* rule's, of connections that are there too, and tells neither
//! side. A firewall that forgets a flow looks like that, and a cable that is cut in one direction. A
//! [proxy](crate::proxy) acknowledges to the sender what it does not hand on.

use std::{
    env,
    net::SocketAddr,
    process::{Command, Output},
};

use anyhow::{Context as _, ensure};

use crate::{
    skip::{Lack, skip},
    turn,
};

/// Set in a program that has a network of its own.
const OWN: &str = "ANTEROOM_OWN_NETWORK";

/// The preference of the rule that looks up local addresses. The kernel's own comes first of all; rules of ours have to.
const LOCAL_PREFERENCE: &str = "100";

/// A direction of what goes over connections to a server.
#[derive(Clone, Copy, Debug)]
pub enum Direction {
    /// What clients send.
    ToServer,
    /// What the server sends.
    FromServer,
}

impl Direction {
    /// Returns the direction as the other side sees it, to whom this side is the server.
    #[must_use]
    pub fn reversed(self) -> Self {
        match self {
            Self::ToServer => Self::FromServer,
            Self::FromServer => Self::ToServer,
        }
    }
}

/// The rules of this program's own network.
#[derive(Debug)]
pub struct Network(());

impl Network {
    /// Returns the network, in a program that has one of its own. Elsewhere it runs the story that is named `story` again, in
    /// such a program, and returns `None` once that is done, or is not possible here.
    ///
    /// # Errors
    /// The story fails there.
    pub async fn own(story: &str) -> anyhow::Result<Option<Self>> {
        if env::var_os(OWN).is_some() {
            run("ip", &["link", "set", "lo", "up"])?;
            run(
                "ip",
                &["rule", "add", "pref", LOCAL_PREFERENCE, "lookup", "local"],
            )?;
            run("ip", &["rule", "del", "pref", "0"])?;
            return Ok(Some(Self(())));
        }
        if let Err(error) = run("unshare", &["--net", "--map-root-user", "ip", "rule"]) {
            let why = format!("no network of one's own here: {error:#}");
            skip(Lack::Right, &why)?;
            return Ok(None);
        }
        let _turn = turn::take().await?;
        let status = tokio::process::Command::new("unshare")
            .args(["--net", "--map-root-user"])
            .arg(env::current_exe()?)
            .args(["--exact", story, "--nocapture"])
            .env(OWN, "true")
            .kill_on_drop(true)
            .status()
            .await?;
        ensure!(
            status.success(),
            "{story}, in a network of its own: {status}"
        );
        Ok(None)
    }

    /// Drops all that goes in this direction over connections to this server, old and new.
    pub fn cut(&self, server: SocketAddr, direction: Direction) -> anyhow::Result<()> {
        rule("add", server, direction)
    }

    /// Lets it through again.
    pub fn mend(&self, server: SocketAddr, direction: Direction) -> anyhow::Result<()> {
        rule("del", server, direction)
    }
}

fn rule(action: &str, server: SocketAddr, direction: Direction) -> anyhow::Result<()> {
    let side = match direction {
        Direction::ToServer => "dport",
        Direction::FromServer => "sport",
    };
    let port = server.port().to_string();
    let what = ["pref", "10", "ipproto", "tcp", side, &port, "blackhole"];
    run("ip", &[&["rule", action], &what[..]].concat())
}

fn run(program: &str, args: &[&str]) -> anyhow::Result<()> {
    let shown = || format!("{program} {}", args.join(" "));
    let Output { status, stderr, .. } = Command::new(program)
        .args(args)
        .output()
        .with_context(shown)?;
    let said = String::from_utf8_lossy(&stderr);
    ensure!(status.success(), "{}: {status}: {}", shown(), said.trim());
    Ok(())
}
