//! Dashboards for Grafana, from one table.

mod table;

use std::fs;

use anyhow::Context as _;
use serde_json::{Value, json};

use self::table::{DASHBOARDS, Dashboard, Panel};
use crate::shell::{root, say};

/// The folder of the dashboards. The chart's ConfigMap holds its files.
const FOLDER: &str = "deploy/chart/files/dashboards";

/// Panels beside each other, of Grafana's 24 columns.
const PANELS_IN_ROW: usize = 3;

/// The height of a panel, in Grafana's rows.
const HEIGHT: usize = 8;

/// Writes each dashboard into its file.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn write() -> anyhow::Result<()> {
    fs::create_dir_all(root().join(FOLDER))?;
    for dashboard in &DASHBOARDS {
        let name = file(dashboard);
        fs::write(root().join(&name), text(dashboard))
            .with_context(|| format!("cannot write {name}"))?;
        say(&format!("wrote {name}"));
    }
    Ok(())
}

/// The complaints about files that are behind the table.
pub(crate) fn check() -> Vec<String> {
    let is_behind = |dashboard: &&Dashboard| {
        let written = fs::read_to_string(root().join(file(dashboard)));
        written.unwrap_or_default() != text(dashboard)
    };
    let behind = DASHBOARDS.iter().filter(is_behind);
    behind
        .map(|dashboard| {
            format!(
                "{}: behind its table: `cargo xtask dashboards`",
                file(dashboard)
            )
        })
        .collect()
}

fn file(dashboard: &Dashboard) -> String {
    format!("{FOLDER}/{}.json", dashboard.name)
}

fn text(dashboard: &Dashboard) -> String {
    let panels = dashboard.panels.iter().enumerate();
    let panels: Vec<_> = panels
        .map(|(number, panel)| of_panel(number, panel))
        .collect();
    let source = json!({ "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus" });
    let dashboard = json!({
        "uid": format!("anteroom-{}", dashboard.name),
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["anteroom"],
        "schemaVersion": 39,
        "editable": true,
        "refresh": "30s",
        "time": { "from": "now-1h", "to": "now" },
        "templating": { "list": [source] },
        "panels": panels,
    });
    format!("{dashboard:#}\n")
}

fn of_panel(number: usize, panel: &Panel) -> Value {
    let width = 24 / PANELS_IN_ROW;
    let source = json!({ "type": "prometheus", "uid": "${datasource}" });
    let target = |(at, (legend, expr)): (usize, &(&str, &str))| {
        let id = char::from(b'A' + u8::try_from(at).unwrap_or_default());
        json!({ "refId": id, "datasource": source, "expr": expr, "legendFormat": legend })
    };
    let targets: Vec<_> = panel.queries.iter().enumerate().map(target).collect();
    json!({
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": source,
        "gridPos": { "x": number % PANELS_IN_ROW * width, "y": number / PANELS_IN_ROW * HEIGHT, "w": width, "h": HEIGHT },
        "fieldConfig": { "defaults": { "unit": panel.unit, "min": 0, "custom": { "fillOpacity": 10 } }, "overrides": [] },
        "options": { "legend": { "displayMode": "list", "placement": "bottom" }, "tooltip": { "mode": "multi" } },
        "targets": targets,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn panels_are_about_metrics_that_there_are_and_have_names_of_their_own() {
        let documented = fs::read_to_string(root().join("docs/metrics.md")).unwrap();
        for dashboard in &DASHBOARDS {
            let titles: BTreeSet<_> = dashboard.panels.iter().map(|panel| panel.title).collect();
            assert_eq!(titles.len(), dashboard.panels.len(), "{}", dashboard.name);
            let queries = dashboard.panels.iter().flat_map(|panel| panel.queries);
            for (_, expr) in queries {
                let words = expr.split(|of: char| !(of.is_alphanumeric() || of == '_'));
                let metrics = words
                    .filter(|word| word.starts_with("anteroom_") || word.starts_with("process_"));
                for metric in metrics {
                    let is_of = |suffix| {
                        documented.contains(&format!("| `{}` |", metric.trim_end_matches(suffix)))
                    };
                    let suffixes = ["", "_total", "_bucket", "_sum", "_count"];
                    assert!(suffixes.into_iter().any(is_of), "{metric}");
                }
            }
        }
    }

    #[test]
    fn files_are_as_the_table_says() {
        assert_eq!(check(), Vec::<String>::new());
    }
}
