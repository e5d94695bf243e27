//! A way to a server that can be cut and stopped: bytes go through as they are.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};
use tokio_util::task::AbortOnDropHandle;

/// Bytes that are handed on at once.
const CHUNK_BYTES: usize = 64 * 1024;

#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    /// Connections that were made before the last cut are gone.
    cuts: u64,
    /// Nothing is handed on.
    silent: bool,
}

/// Stands between its clients and a server until it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    servers: Arc<Mutex<Vec<SocketAddr>>>,
    faults: watch::Sender<Faults>,
    _accepting: AbortOnDropHandle<()>,
}

impl Proxy {
    /// Before the server at this address.
    pub async fn start(server: SocketAddr) -> anyhow::Result<Self> {
        Self::start_before(vec![server]).await
    }

    /// Before these servers, on loopback: each connection leads to the next of them.
    pub async fn start_before(servers: Vec<SocketAddr>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let faults = watch::Sender::new(Faults::default());
        let servers = Arc::new(Mutex::new(servers));
        let accepting = accept(listener, Arc::clone(&servers), faults.subscribe());
        let accepting = tokio::spawn(accepting);
        Ok(Self {
            address,
            servers,
            faults,
            _accepting: AbortOnDropHandle::new(accepting),
        })
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Leads new connections to these servers from now on, to each in turn. Without a server they are closed.
    pub fn lead_to(&self, servers: Vec<SocketAddr>) {
        *self.servers.lock() = servers;
    }

    /// Cuts every connection that is open.
    pub fn cut(&self) {
        self.faults.send_modify(|faults| faults.cuts += 1);
    }

    /// From now on no byte comes through, in either direction, and no connection is closed. Once the silence
    /// ends, the bytes that wait come through.
    pub fn silence(&self, silent: bool) {
        self.faults.send_modify(|faults| faults.silent = silent);
    }
}

/// Takes connections, and leads each to the next server.
async fn accept(
    listener: TcpListener,
    servers: Arc<Mutex<Vec<SocketAddr>>>,
    faults: watch::Receiver<Faults>,
) {
    let mut turn = 0;
    while let Ok((client, _)) = listener.accept().await {
        let server = in_turn(&servers.lock(), turn);
        turn += 1;
        if let Some(server) = server {
            tokio::spawn(connection(client, server, faults.clone()));
        }
    }
}

/// Returns the server of this turn; `None` if there are no servers.
fn in_turn(servers: &[SocketAddr], turn: usize) -> Option<SocketAddr> {
    let at = turn.checked_rem(servers.len())?;
    servers.get(at).copied()
}

async fn connection(client: TcpStream, server: SocketAddr, faults: watch::Receiver<Faults>) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let mut cut = faults.clone();
    let born = cut.borrow_and_update().cuts;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = hand_on(from_client, to_server, faults.clone()) => {}
        () = hand_on(from_server, to_client, faults) => {}
        _ = cut.wait_for(|faults| faults.cuts != born) => {}
    }
}

async fn hand_on(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut faults: watch::Receiver<Faults>,
) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(bytes @ 1..) = from.read(&mut chunk).await {
        if faults.wait_for(|faults| !faults.silent).await.is_err() {
            return;
        }
        if to.write_all(&chunk[..bytes]).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Starts a server that echoes its input.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = client.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        address
    }

    #[tokio::test]
    async fn bytes_go_through_wait_and_end_with_the_connection() {
        let proxy = Proxy::start(echo().await).await.unwrap();
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        let mut said = [0; 2];
        client.write_all(b"ab").await.unwrap();
        client.read_exact(&mut said).await.unwrap();
        proxy.silence(true);
        client.write_all(b"cd").await.unwrap();
        let wait = Duration::from_millis(50);
        let nothing = tokio::time::timeout(wait, client.read_exact(&mut said)).await;
        nothing.unwrap_err();
        proxy.silence(false);
        client.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"cd");
        proxy.cut();
        assert_eq!(client.read(&mut said).await.unwrap_or_default(), 0);
        let mut another = TcpStream::connect(proxy.address()).await.unwrap();
        another.write_all(b"ef").await.unwrap();
        another.read_exact(&mut said).await.unwrap();
    }

    #[tokio::test]
    async fn new_connections_lead_to_the_servers_of_now_and_others_stay() {
        let proxy = Proxy::start_before(Vec::new()).await.unwrap();
        let mut said = [0; 2];
        let mut closed = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(closed.read(&mut said).await.unwrap_or_default(), 0);
        proxy.lead_to(vec![echo().await]);
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        client.write_all(b"ab").await.unwrap();
        client.read_exact(&mut said).await.unwrap();
        proxy.lead_to(Vec::new());
        client.write_all(b"cd").await.unwrap();
        client.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"cd");
    }
}
