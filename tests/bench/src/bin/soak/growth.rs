//! Figures of the processes during a run, and how much they grow.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use anyhow::ensure;

/// The greatest growth of a figure from the run's first looks to its last, in percent.
pub(crate) const GROWTH_PERCENT_MAX: u64 = 10;

/// The process of NATS.
pub(crate) const NATS: &str = "nats";

/// The greatest growth of NATS's resident memory, in percent. Its garbage collector lets the heap double between two collections, so
/// that a look may find either.
const NATS_MEMORY_GROWTH_PERCENT_MAX: u64 = 100;

/// The disk that the log may take, in percent of its messages: NATS takes room back once half of a block is free.
pub(crate) const DISK_PERCENT_MAX: u64 = 250;

/// The disk that the log may take beside that: two of NATS's blocks of 8 MiB. NATS writes to the last block, and may not yet
/// have taken back the room in the block before.
pub(crate) const DISK_SPARE_BYTES: u64 = 16 << 20;

/// The share of looks that are compared, at the begin and at the end: one in so many.
const COMPARED_SHARE: usize = 10;

/// The least number of looks that are compared on either side.
const COMPARED_MIN: usize = 5;

/// A figure of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Figure {
    /// Resident memory.
    RssBytes,
    /// Series of metrics.
    Series,
    /// Bytes of the messages in the log and in other streams.
    LogBytes,
    /// The number of these messages.
    LogMessages,
    /// Bytes of the streams' files.
    DiskBytes,
    /// Readers of streams.
    Consumers,
    /// Connections of clients.
    Connections,
    /// Subscriptions of clients.
    Subscriptions,
}

impl Figure {
    fn name(self) -> &'static str {
        match self {
            Self::RssBytes => "resident memory",
            Self::Series => "series of metrics",
            Self::LogBytes => "in the log",
            Self::LogMessages => "messages in the log",
            Self::DiskBytes => "files of the log",
            Self::Consumers => "consumers",
            Self::Connections => "connections",
            Self::Subscriptions => "subscriptions",
        }
    }

    /// Returns what the figure may grow by beside its percentage: an outcome that is seen for the first time
    /// has series of its own, and clients connect anew after a restart of NATS.
    fn spare(self) -> u64 {
        match self {
            Self::RssBytes | Self::LogBytes | Self::DiskBytes => 0,
            Self::Series => 16,
            Self::LogMessages => 64,
            Self::Consumers | Self::Connections => 2,
            Self::Subscriptions => 8,
        }
    }

    fn is_bytes(self) -> bool {
        matches!(self, Self::RssBytes | Self::LogBytes | Self::DiskBytes)
    }

    /// Returns what stands for several looks. Memory goes up and down, so it is the middle. Entries and policies of the run
    /// come and go, and are in some looks only, so it is the least of a number.
    fn typical(self, mut looks: Vec<u64>) -> u64 {
        looks.sort_unstable();
        let at = match self.is_bytes() {
            true => looks.len() / 2,
            false => 0,
        };
        looks.get(at).copied().unwrap_or_default()
    }

    fn shown(self, value: u64) -> String {
        match self.is_bytes() {
            true => format!("{:.1} MB", value as f64 / 1e6),
            false => value.to_string(),
        }
    }
}

/// All figures at a moment, by process.
pub(crate) type Look = BTreeMap<(String, Figure), u64>;

/// A figure at the begin and at the end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    process: String,
    figure: Figure,
    first: u64,
    last: u64,
    at_most: u64,
}

impl Change {
    fn is_too_much(&self) -> bool {
        self.last > self.at_most
    }
}

/// The changes of all figures over a run.
#[derive(Debug)]
pub(crate) struct Growth(Vec<Change>);

impl Growth {
    /// Compares the first of these looks with the last.
    ///
    /// # Errors
    /// There are too few.
    pub(crate) fn over(looks: &[Look]) -> anyhow::Result<Self> {
        let count = (looks.len() / COMPARED_SHARE).max(COMPARED_MIN);
        ensure!(
            looks.len() >= 2 * count,
            "{} looks after the begin, and {} are compared: let there be more events",
            looks.len(),
            2 * count
        );
        let (first, last) = (&looks[..count], &looks[looks.len() - count..]);
        let all = [first, last].concat();
        let names: BTreeSet<_> = all.iter().flat_map(Look::keys).cloned().collect();
        let changes = names.into_iter().map(|(process, figure)| {
            let typical = |looks: &[Look]| {
                let key = (process.clone(), figure);
                let found = looks.iter().filter_map(|look| look.get(&key).copied());
                figure.typical(found.collect())
            };
            let (first, last) = (typical(first), typical(last));
            let percent_max = match figure {
                Figure::RssBytes if process == NATS => NATS_MEMORY_GROWTH_PERCENT_MAX,
                _ => GROWTH_PERCENT_MAX,
            };
            Change {
                at_most: first + first * percent_max / 100 + figure.spare(),
                process,
                figure,
                first,
                last,
            }
        });
        let mut changes: Vec<_> = changes.collect();
        limit_disk(&mut changes);
        Ok(Self(changes))
    }

    /// Returns a table of all figures, in Markdown.
    pub(crate) fn table(&self) -> String {
        let mut table =
            "| process | figure | after a tenth | at the end | at most |\n|---|---|---|---|---|\n"
                .to_owned();
        for change in &self.0 {
            let shown = |value| change.figure.shown(value);
            let mark = match change.is_too_much() {
                true => " **too much**",
                false => "",
            };
            // Writing to a string never fails.
            let _ = writeln!(
                table,
                "| {} | {} | {} | {}{mark} | {} |",
                change.process,
                change.figure.name(),
                shown(change.first),
                shown(change.last),
                shown(change.at_most)
            );
        }
        table
    }

    /// Returns the figures that grew by more than they may.
    pub(crate) fn too_much(&self) -> Vec<String> {
        let grown = self.0.iter().filter(|change| change.is_too_much());
        grown
            .map(|change| format!("{} of {}", change.figure.name(), change.process))
            .collect()
    }
}

/// The files of a log are held to what is in it at the end: at the begin its first block may not be full.
fn limit_disk(changes: &mut [Change]) {
    let held: BTreeMap<String, u64> = changes
        .iter()
        .filter(|change| change.figure == Figure::LogBytes)
        .map(|change| (change.process.clone(), change.last))
        .collect();
    let files = changes.iter_mut();
    for change in files.filter(|change| change.figure == Figure::DiskBytes) {
        let held = held.get(&change.process).copied().unwrap_or_default();
        change.at_most = held * DISK_PERCENT_MAX / 100 + DISK_SPARE_BYTES;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn look(rss: u64, series: u64) -> Look {
        let of = |figure, value| (("watcher".to_owned(), figure), value);
        [of(Figure::RssBytes, rss), of(Figure::Series, series)].into()
    }

    fn too_much(first: (u64, u64), last: (u64, u64)) -> Vec<String> {
        let looks = |(rss, series)| vec![look(rss, series); COMPARED_MIN];
        let looks = [looks(first), looks(last)].concat();
        Growth::over(&looks).unwrap().too_much()
    }

    #[test]
    fn memory_may_grow_by_a_tenth_and_series_by_a_few_more() {
        for (last, expected) in [
            ((110 * MB, 100), [].as_slice()),
            (
                (110 * MB + 1, 100),
                ["resident memory of watcher"].as_slice(),
            ),
            ((50 * MB, 126), [].as_slice()),
            ((50 * MB, 127), ["series of metrics of watcher"].as_slice()),
        ] {
            assert_eq!(too_much((100 * MB, 100), last), expected, "{last:?}");
        }
    }

    #[test]
    fn a_single_look_of_much_memory_and_series_that_come_and_go_are_no_growth() {
        let calm = vec![look(100, 50); COMPARED_MIN];
        let mut last = calm.clone();
        last[0] = look(1_000, 50);
        last[1] = look(100, 500);
        let growth = Growth::over(&[calm, last].concat()).unwrap();
        assert_eq!(growth.too_much(), [""; 0]);
    }

    #[test]
    fn the_files_of_a_log_are_held_to_what_is_in_it() {
        let of = |figure, value| ((NATS.to_owned(), figure), value);
        let look = |disk| Look::from([of(Figure::LogBytes, 100 * MB), of(Figure::DiskBytes, disk)]);
        let most = 250 * MB + DISK_SPARE_BYTES;
        for (disk, expected) in [
            (most, [].as_slice()),
            (most + 1, ["files of the log of nats"].as_slice()),
        ] {
            let looks = vec![look(disk); 2 * COMPARED_MIN];
            assert_eq!(Growth::over(&looks).unwrap().too_much(), expected);
        }
    }

    #[test]
    fn memory_of_nats_may_double() {
        let looks =
            |rss| vec![Look::from([((NATS.to_owned(), Figure::RssBytes), rss)]); COMPARED_MIN];
        for (last, expected) in [
            (200 * MB, [].as_slice()),
            (200 * MB + 1, ["resident memory of nats"].as_slice()),
        ] {
            let growth = Growth::over(&[looks(100 * MB), looks(last)].concat());
            assert_eq!(growth.unwrap().too_much(), expected);
        }
    }

    #[test]
    fn too_few_looks_tell_nothing() {
        let looks = vec![look(1, 1); 2 * COMPARED_MIN - 1];
        assert!(Growth::over(&looks).is_err());
    }

    #[test]
    fn a_table_has_a_row_for_each_figure_and_marks_what_grew() {
        let looks = [look(100 * MB, 7), look(200 * MB, 7)];
        let looks = looks.map(|look| vec![look; COMPARED_MIN]).concat();
        let table = Growth::over(&looks).unwrap().table();
        let rows: Vec<_> = table.lines().skip(2).collect();
        let expected = [
            "| watcher | resident memory | 100.0 MB | 200.0 MB **too much** | 110.0 MB |",
            "| watcher | series of metrics | 7 | 7 | 23 |",
        ];
        assert_eq!(rows, expected);
    }
}
