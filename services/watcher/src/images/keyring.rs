//! The files that say who signs in where. They are read whenever a registry asks for it, so what was
//! changed in them counts at once, and nothing of them is kept.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use tokio::{fs::File, io::AsyncReadExt as _};

use super::credentials::{Config, Credential, Fit};
use crate::calls::CallFault;

/// The largest file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Files of credentials. Of two that say the same of an image, the first counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Keyring(pub(super) Vec<PathBuf>);

impl Keyring {
    /// What is for a repository. A file that is not there says nothing, as where an optional Secret is
    /// mounted.
    ///
    /// # Errors
    /// [`CallFault::Credentials`] where a file cannot be read: what it says is not known, so nobody is
    /// taken for one who needs none.
    pub(super) async fn find(
        &self,
        host: &str,
        repository: &str,
    ) -> Result<Option<Credential>, CallFault> {
        let mut best: Option<(Fit, Credential)> = None;
        for path in &self.0 {
            let config = read(path).await.map_err(|problem| wrong(path, &problem))?;
            let found = config
                .as_ref()
                .and_then(|config| config.find(host, repository));
            let Some((fit, credential)) = found else {
                continue;
            };
            if best.as_ref().is_some_and(|(better, _)| *better >= fit) {
                continue;
            }
            let credential = credential.clone();
            let credential = credential.map_err(|problem| wrong(path, &problem.to_string()))?;
            best = Some((fit, credential));
        }
        Ok(best.map(|(_, credential)| credential))
    }

    /// Tells in the log what is wrong with the files as they are now.
    pub(super) async fn tell(&self) {
        for path in &self.0 {
            match read(path).await {
                Err(problem) => drop(wrong(path, &problem)),
                Ok(None) => tracing::info!(
                    path = %path.display(),
                    "the file of registries' credentials is not there: nobody signs in by it until it is"
                ),
                Ok(Some(config)) => config
                    .wrong()
                    .for_each(|problem| drop(wrong(path, &problem.to_string()))),
            }
        }
    }
}

/// The log has the path; who wrote a Pod is not told it.
fn wrong(path: &Path, problem: &str) -> CallFault {
    tracing::error!(path = %path.display(), problem, "a file of registries' credentials is wrong");
    CallFault::Credentials
}

/// `None` where it is not there.
async fn read(path: &Path) -> Result<Option<Config>, String> {
    let file = match File::open(path).await {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let mut text = Vec::new();
    let mut limited = file.take(FILE_BYTES_MAX + 1);
    let read = limited.read_to_end(&mut text).await;
    let bytes = read.map_err(|error| error.to_string())?;
    if bytes as u64 > FILE_BYTES_MAX {
        return Err(format!("it has more than {FILE_BYTES_MAX} bytes"));
    }
    let config = Config::parse(&text).map_err(|wrong| wrong.to_string())?;
    Ok(Some(config))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn file(folder: &TempDir, name: &str, text: &str) -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn auths(entries: &[(&str, &str)]) -> String {
        let entry = |(key, name): &(&str, &str)| {
            format!(r#""{key}": {{"username": "{name}", "password": "p"}}"#)
        };
        let entries: Vec<_> = entries.iter().map(entry).collect();
        format!(r#"{{"auths": {{{}}}}}"#, entries.join(", "))
    }

    async fn found(keyring: &Keyring, repository: &str) -> Result<String, CallFault> {
        let found = keyring.find("ghcr.io", repository).await?;
        Ok(match found {
            Some(Credential::Password { name, .. }) => name,
            other => format!("{other:?}"),
        })
    }

    #[tokio::test]
    async fn of_several_files_what_says_most_counts_and_then_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let one = file(
            &folder,
            "one",
            &auths(&[("ghcr.io", "one"), ("other.io", "x")]),
        );
        let two = file(
            &folder,
            "two",
            &auths(&[("ghcr.io", "two"), ("ghcr.io/shop", "shop")]),
        );
        let none = one.with_file_name("none");
        let keyring = Keyring(vec![none, one.clone(), two.clone()]);
        assert_eq!(found(&keyring, "a").await.as_deref(), Ok("one"));
        assert_eq!(found(&keyring, "shop/a").await.as_deref(), Ok("shop"));
        // What is written counts at once.
        std::fs::write(&two, auths(&[("ghcr.io/shop", "later")])).unwrap();
        assert_eq!(found(&keyring, "shop/a").await.as_deref(), Ok("later"));
        std::fs::remove_file(&one).unwrap();
        assert_eq!(found(&keyring, "a").await.as_deref(), Ok("None"));
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_is_not_one_that_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut largest = auths(&[("ghcr.io", "me")]);
        largest.push_str(&" ".repeat(FILE_BYTES_MAX as usize - largest.len()));
        let fits = Keyring(vec![file(&folder, "largest", &largest)]);
        assert_eq!(found(&fits, "a").await.as_deref(), Ok("me"));
        largest.push(' ');
        let half = r#"{"auths": {"ghcr.io/x": {"auth": "?"}, "ghcr.io": {"username": "me"}}}"#;
        let half = Keyring(vec![file(&folder, "half", half)]);
        assert_eq!(found(&half, "a").await.as_deref(), Ok("me"));
        for (wrong, repository) in [
            (Keyring(vec![file(&folder, "large", &largest)]), "a"),
            (Keyring(vec![file(&folder, "text", "hello")]), "a"),
            (Keyring(vec![folder.path().to_owned()]), "a"),
            (half, "x/a"),
        ] {
            let fault = found(&wrong, repository).await.unwrap_err();
            assert_eq!(fault, CallFault::Credentials, "{wrong:?}");
        }
    }
}
