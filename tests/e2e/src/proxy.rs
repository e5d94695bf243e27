//! A way to a server that can be cut, stopped in one direction or in both, and made slow: bytes go through as they are.

use std::{
    future::pending,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use rand::Rng as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};
use tokio_util::task::AbortOnDropHandle;

use crate::network::Direction;

/// Bytes that are handed on at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// Chunks that are on their way in one direction of a connection; at the limit, no more are taken in.
const CHUNKS_MAX: usize = 256;

/// Both directions.
const DIRECTIONS: [Direction; 2] = [Direction::ToServer, Direction::FromServer];

/// The time that bytes take on their way, drawn for each chunk. Chunks stay in order, and may be on their way together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delay {
    least: Duration,
    most: Duration,
}

impl Delay {
    /// This delay, or up to `jitter` more or less.
    pub const fn around(middle: Duration, jitter: Duration) -> Self {
        Self {
            least: middle.saturating_sub(jitter),
            most: middle.saturating_add(jitter),
        }
    }

    /// Returns the time at which a chunk of now arrives; `None`: at once.
    fn arrival(self) -> Option<Instant> {
        if self.most.is_zero() {
            return None;
        }
        Some(Instant::now() + rand::rng().random_range(self.least..=self.most))
    }
}

/// The faults of one direction.
#[derive(Clone, Copy, Debug, Default)]
struct OneWay {
    /// Nothing is handed on.
    is_silent: bool,
    delay: Delay,
}

#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    /// Connections that were made before the last cut are gone.
    cuts: u64,
    to_server: OneWay,
    from_server: OneWay,
}

impl Faults {
    fn of(&self, direction: Direction) -> OneWay {
        match direction {
            Direction::ToServer => self.to_server,
            Direction::FromServer => self.from_server,
        }
    }

    fn of_mut(&mut self, direction: Direction) -> &mut OneWay {
        match direction {
            Direction::ToServer => &mut self.to_server,
            Direction::FromServer => &mut self.from_server,
        }
    }
}

/// A chunk on its way, with the time of its arrival.
type Chunk = (Option<Instant>, Vec<u8>);

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
        for direction in DIRECTIONS {
            self.silence_one_way(direction, silent);
        }
    }

    /// Does the same as [`Proxy::silence`] in one direction.
    pub fn silence_one_way(&self, direction: Direction, silent: bool) {
        let set = |faults: &mut Faults| faults.of_mut(direction).is_silent = silent;
        self.faults.send_modify(set);
    }

    /// Delays all that is said from now on, in each direction.
    pub fn delay(&self, delay: Delay) {
        self.faults.send_modify(|faults| {
            for direction in DIRECTIONS {
                faults.of_mut(direction).delay = delay;
            }
        });
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
    // Small chunks wait for no acknowledgement of those before, as between the two without a proxy.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let mut cut = faults.clone();
    let born = cut.borrow_and_update().cuts;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let both = async {
        // One side may be done while the other still has something to say.
        let _ = tokio::try_join!(
            hand_on(from_client, to_server, Direction::ToServer, faults.clone()),
            hand_on(from_server, to_client, Direction::FromServer, faults),
        );
    };
    tokio::select! {
        () = both => {}
        _ = cut.wait_for(|faults| faults.cuts != born) => {}
    }
}

/// A connection that is gone, as against one whose end was handed on.
struct Broken;

async fn hand_on(
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    direction: Direction,
    faults: watch::Receiver<Faults>,
) -> Result<(), Broken> {
    let (sender, chunks) = mpsc::channel(CHUNKS_MAX);
    let taken_in = take_in(from, sender, direction, faults.clone());
    // All is done once the last chunk is given out.
    let taking_in = async {
        taken_in.await;
        pending::<Result<(), Broken>>().await
    };
    tokio::select! {
        never = taking_in => never,
        done = give_out(to, chunks, direction, faults) => done,
    }
}

async fn take_in(
    mut from: OwnedReadHalf,
    chunks: mpsc::Sender<Chunk>,
    direction: Direction,
    faults: watch::Receiver<Faults>,
) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(bytes @ 1..) = from.read(&mut chunk).await {
        let delay = faults.borrow().of(direction).delay;
        let on_its_way = (delay.arrival(), chunk[..bytes].to_vec());
        if chunks.send(on_its_way).await.is_err() {
            return;
        }
    }
}

async fn give_out(
    mut to: OwnedWriteHalf,
    mut chunks: mpsc::Receiver<Chunk>,
    direction: Direction,
    mut faults: watch::Receiver<Faults>,
) -> Result<(), Broken> {
    let is_open = move |faults: &Faults| !faults.of(direction).is_silent;
    while let Some((arrival, chunk)) = chunks.recv().await {
        if let Some(arrival) = arrival {
            sleep_until(arrival).await;
        }
        if faults.wait_for(is_open).await.is_err() {
            return Err(Broken);
        }
        to.write_all(&chunk).await.map_err(|_| Broken)?;
    }
    // The end of a connection is not told either while nothing comes through.
    if faults.wait_for(is_open).await.is_err() {
        return Err(Broken);
    }
    to.shutdown().await.map_err(|_| Broken)
}

#[cfg(test)]
mod tests {
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
    async fn one_direction_waits_alone_and_its_end_is_not_told() {
        let proxy = Proxy::start(echo().await).await.unwrap();
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        let mut said = [0; 2];
        proxy.silence_one_way(Direction::FromServer, true);
        client.write_all(b"ab").await.unwrap();
        client.shutdown().await.unwrap();
        let wait = Duration::from_millis(50);
        let nothing = tokio::time::timeout(wait, client.read_exact(&mut said)).await;
        nothing.unwrap_err();
        proxy.silence_one_way(Direction::FromServer, false);
        client.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"ab");
    }

    #[tokio::test]
    async fn what_is_delayed_comes_later_in_each_direction_and_in_order() {
        let proxy = Proxy::start(echo().await).await.unwrap();
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        let mut said = [0; 4];
        let (middle, jitter) = (Duration::from_millis(30), Duration::from_millis(10));
        proxy.delay(Delay::around(middle, jitter));
        let begun = Instant::now();
        client.write_all(b"ab").await.unwrap();
        client.write_all(b"cd").await.unwrap();
        client.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"abcd");
        assert!(begun.elapsed() >= 2 * (middle - jitter));
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
