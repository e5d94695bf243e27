//! HTTP/1.1 on threads: a connection for each, written and read by two system calls a request.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{Arc, Barrier},
    thread,
    time::Instant,
};

use anyhow::Context;
use rustls::{ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;

use super::{
    Paced,
    clock::{MachineClock, thread_cpu, wake_in_time},
    drive::{Exchange, work},
    question::Asker,
    stalls::MachineWatch,
    tally::{PacedReport, Tally},
    turns::Turns,
};
use crate::{Target, client::tls_config};

/// The largest answer that is read.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// The most bytes that one read takes.
const READ_BYTES: usize = 16 * 1024;

pub(super) fn run(plan: &Paced) -> anyhow::Result<PacedReport> {
    let turns = Turns::new(plan.pace, plan.lasts, Paced::GRACE);
    let ready = Barrier::new(plan.at_once + 1);
    let connections = (0..plan.at_once).map(|_| Connection::open(&plan.target));
    let connections = connections.collect::<anyhow::Result<Vec<_>>>()?;
    thread::scope(|scope| {
        let started = connections
            .into_iter()
            .enumerate()
            .map(|(worker, connection)| {
                let (turns, ready) = (&turns, &ready);
                thread::Builder::new()
                    .name(format!("load-{worker}"))
                    .spawn_scoped(scope, move || {
                        let asker = Asker::new(&plan.questions, worker);
                        run_worker(asker, connection, turns, ready)
                    })
            });
        let workers = started.collect::<Result<Vec<_>, _>>()?;
        ready.wait();
        let machine = MachineWatch::begin(Instant::now())?;
        let mut all = Tally::new();
        for worker in workers {
            let tally = worker.join();
            all.merge(tally.map_err(|_| anyhow::anyhow!("a load worker panicked"))?);
        }
        Ok(all.report(turns.left(), &machine.end()))
    })
}

fn run_worker(
    mut asker: Asker,
    mut connection: Connection,
    turns: &Turns,
    ready: &Barrier,
) -> Tally {
    wake_in_time();
    let mut body = Vec::new();
    for _ in 0..Paced::WARM_UP_POSTS {
        asker.ask(&mut body);
        // What goes wrong here goes wrong again where it is counted.
        let _ = connection.post(&body);
    }
    ready.wait();
    let cpu = thread_cpu();
    let clock = MachineClock {
        start: Instant::now(),
    };
    let mut tally = Tally::new();
    work(&clock, &mut connection, turns, &mut asker, &mut tally);
    tally.cpu = thread_cpu().saturating_sub(cpu);
    tally
}

/// A connection that is made again when it broke.
struct Connection {
    target: Target,
    tls: Arc<rustls::ClientConfig>,
    /// All of a request's head but the length.
    head: Vec<u8>,
    request: Vec<u8>,
    answer: Vec<u8>,
    stream: Option<StreamOwned<ClientConnection, TcpStream>>,
}

impl Connection {
    fn open(target: &Target) -> anyhow::Result<Self> {
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: ",
            target.path, target.server_name
        );
        let mut connection = Self {
            target: target.clone(),
            tls: Arc::new(tls_config(&target.ca_pem, &[b"http/1.1"])?),
            head: head.into_bytes(),
            request: Vec::new(),
            answer: Vec::new(),
            stream: None,
        };
        connection.stream = Some(connection.connect()?);
        Ok(connection)
    }

    fn connect(&self) -> anyhow::Result<StreamOwned<ClientConnection, TcpStream>> {
        let mut stream = TcpStream::connect(self.target.address)
            .with_context(|| format!("cannot reach the webhook at {}", self.target.address))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(self.target.timeout))?;
        let name = ServerName::try_from(self.target.server_name.clone())?;
        let mut tls = ClientConnection::new(self.tls.clone(), name)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut stream)?;
        }
        Ok(StreamOwned::new(tls, stream))
    }

    fn exchange(
        &mut self,
        stream: &mut StreamOwned<ClientConnection, TcpStream>,
        body: &[u8],
    ) -> Result<Head, String> {
        self.request.clear();
        self.request.extend_from_slice(&self.head);
        // Writing to a vector cannot fail.
        let _ = write!(self.request, "{}\r\n\r\n", body.len());
        self.request.extend_from_slice(body);
        let io = |e: std::io::Error| e.kind().to_string();
        stream.write_all(&self.request).map_err(io)?;
        stream.flush().map_err(io)?;
        self.answer.clear();
        let mut filled = 0;
        loop {
            self.answer.resize(filled + READ_BYTES, 0);
            let read = stream.read(&mut self.answer[filled..]).map_err(io)?;
            if read == 0 {
                return Err("the connection was closed before the answer".into());
            }
            filled += read;
            if let Some(head) = Head::parse(&self.answer[..filled])?
                && filled >= head.body_end
            {
                return Ok(head);
            }
            if filled > ANSWER_BYTES_MAX {
                return Err("an answer of more than a megabyte".into());
            }
        }
    }
}

impl Exchange for Connection {
    fn post(&mut self, body: &[u8]) -> Result<&[u8], String> {
        let mut stream = match self.stream.take() {
            Some(kept) => kept,
            None => self.connect().map_err(|e| format!("{e:#}"))?,
        };
        // A failed exchange drops the connection, so that its rest is not read as part of the next.
        let head = self.exchange(&mut stream, body)?;
        if !head.closes {
            self.stream = Some(stream);
        }
        let body = &self.answer[head.body_start..head.body_end];
        if head.status != 200 {
            let said = String::from_utf8_lossy(body);
            return Err(format!("HTTP {}: {said}", head.status));
        }
        Ok(body)
    }
}

/// The parts of an answer's head that are read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) body_start: usize,
    pub(super) body_end: usize,
    /// The server closes the connection after it.
    pub(super) closes: bool,
}

impl Head {
    /// `None`: more is to come.
    pub(super) fn parse(answer: &[u8]) -> Result<Option<Self>, String> {
        const END: &[u8] = b"\r\n\r\n";
        let Some(end) = answer.windows(END.len()).position(|window| window == END) else {
            return Ok(None);
        };
        let head = std::str::from_utf8(&answer[..end]).map_err(|_| "a head that is no text")?;
        let mut lines = head.split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let (mut length, mut closes) = (None, false);
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse::<usize>().ok();
            } else if name.eq_ignore_ascii_case("connection") {
                closes = value.trim().eq_ignore_ascii_case("close");
            }
        }
        let body_start = end + END.len();
        Ok(Some(Self {
            status: status.ok_or("a head without a status")?,
            body_start,
            body_end: body_start + length.ok_or("an answer without a length")?,
            closes,
        }))
    }
}
