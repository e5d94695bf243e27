//! The real parts: built from their Go modules, pinned by `go.mod` and `go.sum` in `tests/parts`.
//!
//! They are tools of one module, so that Helm and the API server share what they have in common when it is compiled.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use crate::shell::{root, say, target};

struct Part {
    binary: &'static str,
    package: &'static str,
    /// Linker flags beyond the stripping; `{version}` is the module's pinned version.
    module: &'static str,
    version_variable: Option<&'static str>,
}

const PARTS: [Part; 4] = [
    Part {
        binary: "nats-server",
        package: "github.com/nats-io/nats-server/v2",
        module: "github.com/nats-io/nats-server/v2",
        version_variable: None,
    },
    Part {
        binary: "etcd",
        package: "go.etcd.io/etcd/server/v3",
        module: "go.etcd.io/etcd/server/v3",
        version_variable: None,
    },
    Part {
        binary: "kube-apiserver",
        package: "k8s.io/kubernetes/cmd/kube-apiserver",
        module: "k8s.io/kubernetes",
        version_variable: Some("k8s.io/component-base/version.gitVersion"),
    },
    Part {
        binary: HELM,
        package: "helm.sh/helm/v3/cmd/helm",
        module: "helm.sh/helm/v3",
        version_variable: Some("helm.sh/helm/v3/internal/version.version"),
    },
];

/// The name of Helm's program.
pub(crate) const HELM: &str = "helm";

/// The interval at which a build that is still running says so.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(15);

/// The names of all parts.
pub(crate) const ALL: [&str; 4] = [
    PARTS[0].binary,
    PARTS[1].binary,
    PARTS[2].binary,
    PARTS[3].binary,
];

/// Builds those of the named parts that are missing or out of date.
pub(crate) fn build(named: &[&str], force: bool) -> anyhow::Result<()> {
    let out = folder();
    fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let modules = root().join("tests/parts");
    let read = |file| fs::read_to_string(modules.join(file));
    let pins = read("go.mod")? + &read("go.sum")?;
    for part in PARTS.iter().filter(|part| named.contains(&part.binary)) {
        // The stamp is what the part was built from, so a changed pin builds it anew.
        let stamp = out.join(format!("{}.built-from", part.binary));
        let current = fs::read_to_string(&stamp).is_ok_and(|built| built == pins);
        if !force && current && out.join(part.binary).exists() {
            say(&format!("{} is up to date", part.binary));
            continue;
        }
        build_one(part, &modules, &out)?;
        fs::write(&stamp, &pins)?;
    }
    Ok(())
}

/// Returns the folder of the parts that are built.
pub(crate) fn folder() -> PathBuf {
    target().join("real-parts")
}

fn build_one(part: &Part, modules: &Path, out: &Path) -> anyhow::Result<()> {
    let mut linker_flags = "-s -w".to_owned();
    if let Some(variable) = part.version_variable {
        linker_flags += &format!(" -X {variable}={}", pinned_version(part.module, modules)?);
    }
    // Written beside and renamed, so that an interrupted build is never taken for a finished one.
    let unfinished = out.join(format!("{}.unfinished", part.binary));
    let mut child = Command::new("go")
        .current_dir(modules)
        .env("CGO_ENABLED", "0")
        .args(["build", "-trimpath", "-ldflags", &linker_flags, "-o"])
        .arg(&unfinished)
        .arg(part.package)
        .spawn()
        .context(
            "cannot start `go`: the real parts are built from Go modules, install Go 1.26 or newer",
        )?;
    let started = Instant::now();
    let mut next = PROGRESS_INTERVAL;
    say(&format!("building {}", part.binary));
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if started.elapsed() >= next {
            say(&format!(
                "building {}: {} s so far",
                part.binary,
                started.elapsed().as_secs()
            ));
            next += PROGRESS_INTERVAL;
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "no runtime here, and nothing to await"
        )]
        std::thread::sleep(Duration::from_millis(200));
    };
    if !status.success() {
        bail!("building {} ended with {status}", part.binary);
    }
    fs::rename(&unfinished, out.join(part.binary))?;
    say(&format!(
        "built {} in {} s",
        part.binary,
        started.elapsed().as_secs()
    ));
    Ok(())
}

fn pinned_version(module: &str, modules: &Path) -> anyhow::Result<String> {
    let output = Command::new("go")
        .current_dir(modules)
        .args(["list", "-m", "-f", "{{.Version}}", module])
        .output()
        .context("cannot start `go`")?;
    if !output.status.success() {
        bail!(
            "go list -m {module}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
