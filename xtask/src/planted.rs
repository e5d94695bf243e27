//! Faults that are put into the code on purpose: the simulation has to find each one.
//!
//! The tracked files are copied, as they are, into a worktree below `target`. There one fault after the other is put in,
//! and taken out again. All are built into one folder, so that each costs only what depends on its crate.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use anyhow::{Context as _, anyhow, bail, ensure};

use crate::{
    shell::{cargo, root, run, say, target},
    test_programs::PROGRAM_LEVELS,
};

/// The schedules within which a fault has to be found.
const SCHEDULES_MAX: u32 = 2_000;

/// A fault.
struct Planted {
    name: &'static str,
    file: &'static str,
    /// Stands exactly once in the file.
    text: &'static str,
    /// What stands there instead. It has to compile.
    replacement: &'static str,
}

const PLANTED: [Planted; 11] = [
    Planted {
        name: "an age without the time since the beat",
        file: "shared/mirror/src/freshness.rs",
        text: "let since = now.saturating_sub(self.at).as_millis();",
        replacement: "let since = now.saturating_sub(now.max(self.at)).as_millis();",
    },
    Planted {
        name: "a beat counts before its position is read",
        file: "shared/mirror/src/mirrored_view.rs",
        text: "self.freshness.beat(now, last, age_ms, read);",
        replacement: "self.freshness.beat(now, last, age_ms, last.max(read));",
    },
    Planted {
        name: "digests are not compared",
        file: "shared/mirror/src/proof.rs",
        text: "self.counts_agree && self.difference == Digest::EMPTY",
        replacement: "self.counts_agree || !self.counts_agree",
    },
    Planted {
        name: "a reader takes the older state of a log that lost records",
        file: "shared/mirror/src/mirrored_view.rs",
        text: "if differs || self.is_ahead_of_log(now) {",
        replacement: "if differs || self.is_ahead_of_log(now) && read == Revision(0) {",
    },
    Planted {
        name: "a tombstone is passed over",
        file: "shared/view/src/store.rs",
        text: "self.delete(&delta.key, twin)",
        replacement: "Applied::Ignored(Ignored::Absent)",
    },
    Planted {
        name: "a writer does not notice that its log lost records",
        file: "services/watcher/src/log_writer/highest.rs",
        text: "if *given.start() > known.0 {",
        replacement: "if *given.start() > known.0 || known.0 > 0 {",
    },
    Planted {
        name: "batches are taken under any fence",
        file: "shared/bus/src/local/log.rs",
        text: "Some((_, current)) if *current == fence => Ok(()),",
        replacement: "Some((_, current)) if current.group == fence.group => Ok(()),",
    },
    Planted {
        name: "what a list does not bring is not deleted",
        file: "services/watcher/src/log_writer/publish/write_queue.rs",
        text: "let unseen = view.map(|view| view.unseen(list, namespace, version));",
        replacement: "let unseen = view.map(|view| view.unseen(list, namespace, version));
        let unseen = unseen.filter(Vec::is_empty);",
    },
    Planted {
        name: "a policy is told as ready although webhooks have not read it",
        file: "services/watcher/src/coordinator/webhooks.rs",
        text: "beat.incarnation == *log && beat.enforced >= revision",
        replacement: "beat.incarnation == *log || beat.enforced >= revision",
    },
    Planted {
        name: "a webhook accepts an older state than it read before",
        file: "shared/engine/src/facts/floors.rs",
        text: "if revision > floor.revision {",
        replacement: "if revision > floor.revision && revision.0 == 0 {",
    },
    Planted {
        name: "facts that no replica has are empty lists",
        file: "shared/engine/src/facts/bus.rs",
        text: "Err(error) => (vec![Err(error); pending.len()], None),",
        replacement: "Err(_) => (vec![Ok(Value::Array(Vec::new())); pending.len()], None),",
    },
];

impl Planted {
    /// Puts the fault into the text of its file.
    fn put_into(&self, text: &str) -> anyhow::Result<String> {
        match text.matches(self.text).count() {
            1 => Ok(text.replacen(self.text, self.replacement, 1)),
            times => bail!(
                "xtask/src/planted.rs: the text of \"{}\" stands {times} times in {}, and has to stand there once: bring \
                 the fault up to date",
                self.name,
                self.file
            ),
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct PlantedArgs {
    /// Only faults with this text in their names.
    only: Option<String>,
    /// The schedules within which each has to be found.
    #[arg(long, default_value_t = SCHEDULES_MAX)]
    schedules: u32,
}

/// The complaints about faults that do not fit the code any more.
pub(crate) fn check() -> Vec<String> {
    let complaint = |fault: &Planted| {
        let text = fs::read_to_string(root().join(fault.file));
        let text = text.with_context(|| format!("cannot read {}", fault.file));
        let put = text.and_then(|text| fault.put_into(&text));
        put.err().map(|error| format!("{error:#}"))
    };
    PLANTED.iter().filter_map(complaint).collect()
}

/// Puts each fault in, and looks for it.
pub(crate) fn find_all(args: &PlantedArgs) -> anyhow::Result<()> {
    let only = args.only.as_deref().unwrap_or_default();
    let chosen: Vec<_> = PLANTED
        .iter()
        .filter(|fault| fault.name.contains(only))
        .collect();
    ensure!(!chosen.is_empty(), "no planted fault is named \"{only}\"");
    let folder = target().join("planted");
    let trial = Trial {
        tree: folder.join("tree"),
        built: folder.join("build"),
        schedules: args.schedules,
    };
    trial.check_out()?;
    let mut rows = Vec::new();
    for fault in chosen {
        say(&format!("planted: {}", fault.name));
        let outcome = trial.find(fault);
        say(&row(fault, &outcome));
        rows.push((fault, outcome));
    }
    let removed = trial.remove();
    for (fault, outcome) in &rows {
        say(&row(fault, outcome));
    }
    let lost = rows
        .iter()
        .filter(|(_, outcome)| !matches!(outcome, Ok(Some(_))));
    match lost.count() {
        0 => removed,
        lost => bail!("{lost} of {} faults were not found", rows.len()),
    }
}

/// The seed of the first schedule that is wrong; `None`: all are right.
type Outcome = anyhow::Result<Option<u64>>;

fn row(fault: &Planted, outcome: &Outcome) -> String {
    let found = match outcome {
        Ok(Some(seed)) => format!("found by seed {seed}"),
        Ok(None) => "NOT FOUND".to_owned(),
        Err(error) => format!("NOT FOUND: {error:#}"),
    };
    format!("{:<60} {found}", fault.name)
}

/// The folders in which faults are tried.
struct Trial {
    tree: PathBuf,
    built: PathBuf,
    schedules: u32,
}

impl Trial {
    /// Copies the tracked files, with changes that are not committed.
    fn check_out(&self) -> anyhow::Result<()> {
        if self.tree.exists() {
            // Of a run that was interrupted.
            self.remove()?;
        }
        // Of a file that was only touched, `stash` takes the new time for a change, and finds none.
        output(&mut git(&["update-index", "-q", "--refresh"]))?;
        let stash = output(&mut git(&["stash", "create"]))?;
        let why = String::from_utf8_lossy(&stash.stderr);
        ensure!(
            stash.status.success(),
            "git cannot copy what is changed: {why}"
        );
        let stash = String::from_utf8_lossy(&stash.stdout).trim().to_owned();
        let revision = match stash.as_str() {
            "" => "HEAD",
            changed => changed,
        };
        run(git(&["worktree", "add", "--force", "--detach"])
            .arg(&self.tree)
            .arg(revision))
    }

    fn remove(&self) -> anyhow::Result<()> {
        run(git(&["worktree", "remove", "--force"]).arg(&self.tree))
    }

    /// Looks for a fault, and takes it out again.
    fn find(&self, fault: &Planted) -> Outcome {
        let file = self.tree.join(fault.file);
        let text = fs::read_to_string(&file)?;
        fs::write(&file, fault.put_into(&text)?)?;
        let found = self.simulate();
        fs::write(&file, text)?;
        found
    }

    /// Runs schedules until one is wrong, and plays the wrong schedule again.
    fn simulate(&self) -> Outcome {
        let build = ["build", "--config", PROGRAM_LEVELS, "-p", "anteroom-sim"];
        run(cargo(&build)
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.built))?;
        let schedules = self.schedules.to_string();
        let ended = self.sim(&[
            "run",
            "--first",
            "--from",
            "1000000",
            "--schedules",
            &schedules,
        ])?;
        if ended.status.success() {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&ended.stdout);
        let (seed, line) = first_wrong(&text).ok_or_else(|| {
            let why = String::from_utf8_lossy(&ended.stderr);
            anyhow!("the simulation ended with {}: {why}", ended.status)
        })?;
        say(line);
        let again = self.sim(&["seed", &seed.to_string()])?;
        ensure!(
            !again.status.success(),
            "seed {seed} was wrong, and is right when it is played again"
        );
        Ok(Some(seed))
    }

    fn sim(&self, args: &[&str]) -> anyhow::Result<Output> {
        let mut program = Command::new(self.built.join("debug/anteroom-sim"));
        output(program.args(args))
    }
}

/// The first schedule that the simulation calls wrong: its seed and its line.
fn first_wrong(text: &str) -> Option<(u64, &str)> {
    let line = text.lines().find(|line| line.contains(" WRONG "))?;
    let seed = line.split(' ').next()?.parse().ok()?;
    Some((seed, line))
}

fn output(command: &mut Command) -> anyhow::Result<Output> {
    command
        .output()
        .with_context(|| format!("cannot start {command:?}"))
}

fn git(args: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.current_dir(root()).args(args);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAULT: Planted = Planted {
        name: "n",
        file: "f.rs",
        text: "a < b",
        replacement: "a <= b",
    };

    #[test]
    fn a_fault_is_put_in_where_its_text_stands_once() {
        let put = |text| FAULT.put_into(text).map_err(|error| error.to_string());
        assert_eq!(put("if a < b {}"), Ok("if a <= b {}".to_owned()));
        for (text, times) in [("", "0 times"), ("a < b; a < b", "2 times")] {
            assert!(put(text).is_err_and(|error| error.contains(times)));
        }
    }

    #[test]
    fn the_first_wrong_schedule_is_read_from_the_lines_of_the_simulation() {
        let text = "50 schedules in 1.0s: 9 decisions, 1 schedules wrong\n17 WRONG at 1.5 s: x\n  again: y";
        assert_eq!(first_wrong(text), Some((17, "17 WRONG at 1.5 s: x")));
        assert_eq!(first_wrong("50 schedules in 1.0s"), None);
    }

    #[test]
    fn names_of_faults_differ() {
        let mut names: Vec<_> = PLANTED.iter().map(|fault| fault.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PLANTED.len());
    }
}
