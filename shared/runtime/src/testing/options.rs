//! A check that a documentation page describes every option in the words of the program.

use clap::{Arg, Command};

/// The options of `command` and of its subcommands that `page` has no row for, each as the row that
/// it should have: flag, variable, default, meaning.
pub fn undocumented(command: &Command, page: &str) -> Vec<String> {
    let mut command = command.clone();
    command.build(); // Building the command adds options common to all subcommands.
    let mut missing = Vec::new();
    look(&command, page, &mut missing);
    missing
}

fn look(command: &Command, page: &str, missing: &mut Vec<String>) {
    for row in command.get_arguments().filter_map(row) {
        if !page.lines().any(|line| line == row) && !missing.contains(&row) {
            missing.push(row);
        }
    }
    let subcommands = command.get_subcommands();
    subcommands
        .filter(|subcommand| subcommand.get_name() != "help")
        .for_each(|subcommand| look(subcommand, page, missing));
}

fn row(option: &Arg) -> Option<String> {
    let flag = option.get_long()?;
    if ["help", "version"].contains(&flag) {
        return None;
    }
    let variable = option
        .get_env()
        .map(|name| format!("`{}`", name.to_string_lossy()));
    let defaults = option.get_default_values().iter();
    let defaults = defaults.map(|value| format!("`{}`", value.to_string_lossy()));
    let values = option.get_possible_values();
    let values = values.iter().map(|value| format!("`{}`", value.get_name()));
    let (default, values) = match option.get_action().takes_values() {
        true => (join(defaults), join(values)),
        false => Default::default(),
    };
    let meaning = option.get_long_help().or(option.get_help());
    let meaning = meaning.map(ToString::to_string).unwrap_or_default();
    let meaning = meaning.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut meaning = meaning.trim_end_matches('.').replace('|', "\\|");
    if !values.is_empty() {
        meaning = format!("{meaning}: {values}");
    }
    let cells = [
        format!("`--{flag}`"),
        variable.unwrap_or_default(),
        default,
        meaning,
    ];
    Some(format!("| {} |", cells.join(" | ")))
}

fn join(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_whose_row_differs_from_the_program_are_undocumented() {
        let option = Arg::new("limit")
            .long("limit")
            .default_value("5")
            .help("How many\nof a|b.");
        let how = Arg::new("how").long("how").value_parser(["so", "thus"]);
        let sub = Command::new("sub").arg(how.help("How"));
        let command = Command::new("x").arg(option).subcommand(sub);
        let rows = [
            "| `--limit` |  | `5` | How many of a\\|b |",
            "| `--how` |  |  | How: `so`, `thus` |",
        ];
        assert_eq!(
            undocumented(&command, "| `--limit` |  | `6` | How many |"),
            rows
        );
        assert!(undocumented(&command, &rows.join("\n")).is_empty());
    }
}
