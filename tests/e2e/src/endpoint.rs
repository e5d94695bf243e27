//! A service outside of the cluster, which answers every request alike until it is dropped.

use std::net::SocketAddr;

use anyhow::Context;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_util::task::AbortOnDropHandle;

/// One on loopback, over plain HTTP.
#[derive(Debug)]
pub struct Endpoint {
    address: SocketAddr,
    _task: AbortOnDropHandle<()>,
}

impl Endpoint {
    /// Answers with this from now on.
    pub async fn start(answer: &Value) -> anyhow::Result<Self> {
        let body = answer.to_string();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        );
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A caller that went away is its own business.
                let _ = reply(stream, &answer).await;
            }
        });
        Ok(Self {
            address,
            _task: AbortOnDropHandle::new(task),
        })
    }

    /// Returns the URL of the endpoint.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

async fn reply(mut stream: TcpStream, answer: &str) -> anyhow::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let byte = stream.read_u8().await.context("no whole request")?;
        request.push(byte);
    }
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    Ok(())
}
