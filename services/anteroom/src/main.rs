//! A thin `main`: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    anteroom_command::run()
}
