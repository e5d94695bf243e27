//! The login of a client, which is made anew for each connection.
//!
//! A file with a key is read each time, so that a key that was replaced needs no restart. The client library does the same
//! with the files of certificates.

use std::{
    io,
    path::{Path, PathBuf},
};

use async_nats::{Auth, AuthError, ConnectOptions};
use nkeys::KeyPair;

use super::config::{Credentials, NatsConfigError, read};

/// Signs the server's challenge with what a file holds. The error is for people.
type Sign = fn(text: &str, challenge: &[u8]) -> Result<Auth, String>;

/// Returns the options of a client that logs in with these.
pub(super) async fn options(credentials: &Credentials) -> Result<ConnectOptions, NatsConfigError> {
    match credentials {
        Credentials::None => Ok(ConnectOptions::new()),
        Credentials::Password { user, password } => {
            let (user, password) = (user.clone(), password.clone());
            Ok(ConnectOptions::with_user_and_password(user, password))
        }
        Credentials::NkeySeed(path) => with_file("the NKey seed", path, sign_with_seed).await,
        Credentials::Creds(path) => with_file("the credentials", path, sign_with_creds).await,
    }
}

/// Reads the file now too, so that one without a key is an error with a name and not a connection that never comes up.
async fn with_file(
    what: &'static str,
    path: &Path,
    sign: Sign,
) -> Result<ConnectOptions, NatsConfigError> {
    let text = read(what, path).await?;
    if let Err(problem) = sign(&text, &[]) {
        return Err(NatsConfigError::File {
            what,
            path: path.to_owned(),
            source: io::Error::new(io::ErrorKind::InvalidData, problem),
        });
    }
    let path = path.to_owned();
    Ok(ConnectOptions::with_auth_callback(move |challenge| {
        answer(path.clone(), challenge, sign)
    }))
}

async fn answer(path: PathBuf, challenge: Vec<u8>, sign: Sign) -> Result<Auth, AuthError> {
    let text = tokio::fs::read_to_string(&path)
        .await
        .map_err(|error| AuthError::new(format!("{}: {error}", path.display())))?;
    sign(&text, &challenge)
        .map_err(|problem| AuthError::new(format!("{}: {problem}", path.display())))
}

fn sign_with_seed(seed: &str, challenge: &[u8]) -> Result<Auth, String> {
    let (key, signature) = signed(seed, challenge)?;
    let mut auth = Auth::new();
    auth.nkey = Some(key.public_key());
    auth.signature = Some(signature);
    Ok(auth)
}

fn sign_with_creds(creds: &str, challenge: &[u8]) -> Result<Auth, String> {
    let lines = enclosed(creds);
    let [jwt, seed, ..] = lines.as_slice() else {
        return Err("it does not hold a JWT and a seed".to_owned());
    };
    let (_, signature) = signed(seed, challenge)?;
    let mut auth = Auth::new();
    auth.jwt = Some((*jwt).to_owned());
    auth.signature = Some(signature);
    Ok(auth)
}

fn signed(seed: &str, challenge: &[u8]) -> Result<(KeyPair, Vec<u8>), String> {
    let key = KeyPair::from_seed(seed.trim()).map_err(|error| error.to_string())?;
    let signature = key.sign(challenge).map_err(|error| error.to_string())?;
    Ok((key, signature))
}

/// Returns the lines that each stand between two lines of dashes.
fn enclosed(text: &str) -> Vec<&str> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<_> = lines.collect();
    let found = lines.windows(3).filter_map(|three| match three {
        [before, line, after] if is_dashes(before) && !is_dashes(line) && is_dashes(after) => {
            Some(*line)
        }
        _ => None,
    });
    found.collect()
}

fn is_dashes(line: &str) -> bool {
    line.starts_with("---") && line.ends_with("---")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_signed_with_the_key_of_the_file() {
        let pair = KeyPair::new_user();
        let seed = pair.seed().unwrap();
        let auth = sign_with_seed(&format!("{seed}\n"), b"challenge").unwrap();
        assert_eq!(auth.nkey, Some(pair.public_key()));
        let signature = auth.signature.unwrap();
        pair.verify(b"challenge", &signature).unwrap();

        let creds = format!(
            "-----BEGIN NATS USER JWT-----\na.b-c.d_e=\n------END NATS USER JWT------\n\n\
             ************************* IMPORTANT *************************\n\
             NKEY Seed printed below can be used to sign and prove identity.\n\n\
             -----BEGIN USER NKEY SEED-----\r\n{seed}\r\n------END USER NKEY SEED------\r\n\n\
             *************************************************************\n"
        );
        let auth = sign_with_creds(&creds, b"challenge").unwrap();
        assert_eq!((auth.jwt.as_deref(), auth.nkey), (Some("a.b-c.d_e="), None));
        let signature = auth.signature.unwrap();
        pair.verify(b"challenge", &signature).unwrap();
    }

    #[tokio::test]
    async fn a_file_without_a_key_is_refused_by_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seed");
        std::fs::write(&path, "SUABC").unwrap();
        for credentials in [
            Credentials::NkeySeed(path.clone()),
            Credentials::Creds(path.clone()),
            Credentials::NkeySeed(folder.path().join("missing")),
        ] {
            let refused = options(&credentials).await.err().unwrap().to_string();
            let path = folder.path().display().to_string();
            assert!(refused.contains(&path), "{refused}");
        }
    }
}
