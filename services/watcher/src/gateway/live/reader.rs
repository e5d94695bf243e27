//! Answers a live read: checks the right to read, waits for room, and makes the call.

use std::{sync::Arc, time::Duration};

use anteroom_bus::{Address, Call};
use anteroom_mirror::Mirror;
use anteroom_model::{FactError, ObjectKey};
use anteroom_policy::{Policy, PolicyKind, Refusal, service_answer};
use anteroom_runtime::{
    fair_quota::FairPermit, off_thread::off_thread_if, under_way::JobsUnderWay,
};
use anteroom_seal::withheld;
use anteroom_wire::{
    beneficiary::Beneficiary,
    live::{self, LiveCall, LiveOutcome, LiveReply, LiveRequest},
};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    LiveTools,
    allowed::{Allowed, ReadKey, ReadTarget},
    arrivals::UnreadBytes,
    encoded_request::EncodedRequest,
    evaluate::Evaluations,
    failed,
    faults::{ended, exceeded, read_failed},
    large_answers::{AnswerMemory, LargeAnswers, parsed_bytes},
    large_requests::{HeldRequest, LargeRequests},
    limits::{self, Limits, NamespaceQuota, Permits, ReadClaim},
    mutate_existing::Writes,
    policies::Policies,
    shared_reads::SharedReads,
};
use crate::{
    gateway::{
        calls::{CALL_TIMEOUT, CallAnswer, CallTarget, Validators, parse, parse_or_null},
        images::{Image, Images},
        rights::WRITES_FORBIDDEN,
    },
    source::{apiserver::ApiServer, prune::prune},
};

/// The longest wait for a policy that is unknown here, or differs from the caller's: it may be on
/// its way.
const POLICY_WAIT: Duration = Duration::from_millis(500);

/// The longest time that a call is given, whatever its caller says: NATS takes no answer of a watcher after that.
const GIVEN_MAX: Duration = Duration::from_secs(240);

/// Answers up to this size are parsed and evaluated over where they are; larger ones on a thread of their own.
pub(super) const INLINE_BYTES_MAX: usize = 64 * 1024;

/// The answer of a read, or the reason why there is none.
pub(super) type FetchResult = Result<Fetch, FactError>;

/// The answer of a read, with its size and its age.
#[derive(Clone, Debug)]
pub(super) struct Fetch {
    pub(super) answer: Arc<Value>,
    /// About what it takes.
    bytes: usize,
    /// When it was asked for, perhaps for somebody before.
    begun: Instant,
    /// The memory of a large answer, until nobody reads it any more.
    _memory: Option<AnswerMemory>,
    /// The permit of the read, as long: so no more answers are in memory than there may be reads.
    _read: Option<Arc<FairPermit<Beneficiary>>>,
}

impl From<Image> for Fetch {
    fn from(image: Image) -> Self {
        Self {
            answer: image.data,
            bytes: image.bytes,
            begun: image.begun,
            _memory: None,
            _read: None,
        }
    }
}

pub(super) struct LiveReader {
    tools: LiveTools,
    policies: Policies,
    admission: Limits,
    scans: Limits,
    namespaces: NamespaceQuota,
    image_permits: Permits,
    waiting: Permits,
    /// The reviews that requests are for.
    reviews: Arc<JobsUnderWay<Beneficiary>>,
    shared_reads: SharedReads<(bool, Beneficiary, ReadKey), FetchResult>,
    images: Images,
    writes: Writes,
    evaluations: Evaluations,
    large_answers: LargeAnswers,
    large_requests: LargeRequests,
}

impl LiveReader {
    pub(super) fn new(tools: LiveTools, mirror: Arc<Mirror>) -> Self {
        let LiveTools { args, .. } = &tools;
        Self {
            policies: Policies::new(mirror),
            admission: Limits::of_admission(args),
            scans: Limits::of_scans(args),
            namespaces: NamespaceQuota::new(args),
            image_permits: Permits::of_images(),
            waiting: Permits::of_waiting(),
            reviews: JobsUnderWay::new(1),
            shared_reads: SharedReads::default(),
            images: args.registries.images(),
            writes: Writes::new(),
            evaluations: Evaluations::default(),
            large_answers: LargeAnswers::default(),
            large_requests: LargeRequests::default(),
            tools,
        }
    }

    pub(super) fn policies(&self) -> &Policies {
        &self.policies
    }

    pub(super) fn writes(&self) -> &Writes {
        &self.writes
    }

    pub(super) fn images(&self) -> &Images {
        &self.images
    }

    /// Waits until a read for a policy may begin that nobody waits for.
    pub(super) async fn begin_scan(
        &self,
        claim: &ReadClaim,
    ) -> Result<FairPermit<Beneficiary>, FactError> {
        self.scans.begin(claim).await
    }

    /// Counts objects that are too large to be read.
    pub(super) fn unread(&self, count: usize) {
        self.tools.metrics.unread(count);
    }

    /// Returns the reason why a policy may not change existing objects; `None`: it may.
    pub(super) fn writes_forbidden(&self, policy: &ObjectKey) -> Option<String> {
        let may = (self.tools.may_write)(policy);
        (!may).then(|| WRITES_FORBIDDEN.to_owned())
    }

    /// Returns the API server, for requests that are not live reads.
    pub(super) fn api(&self) -> &ApiServer {
        self.tools.caller.api()
    }

    /// Answers a call that came by this address. Whatever is wrong is an answer too. `unread`: the bytes of the call, which
    /// are counted otherwise from the head on.
    pub(super) async fn answer(
        self: &Arc<Self>,
        at: &Address,
        call: &Call,
        unread: UnreadBytes,
    ) -> Bytes {
        let begun = Instant::now();
        let given = call.deadline.min(GIVEN_MAX);
        let mut sealing = None;
        let opened = EncodedRequest::open(&self.tools.asker_keys, &call.body);
        drop(unread);
        let outcome = match opened {
            Err(error) => Err(error),
            Ok((encoded, answering)) => {
                let is_sealed = answering.is_some();
                sealing = answering;
                let latest_begin = limits::latest_begin(begun, given);
                let read = self.outcome(at, &encoded, is_sealed, latest_begin);
                let read = tokio::time::timeout(given, read).await;
                read.unwrap_or_else(|_| Err(exceeded(given)))
            }
        };
        record(&outcome);
        let error = outcome.as_ref().err();
        self.tools.metrics.ended(error, begun.elapsed());
        let outcome = encode(&outcome);
        match sealing.map(|answering| answering.seal(&outcome)) {
            None => outcome,
            Some(Ok(sealed)) => sealed,
            Some(Err(error)) => encode(&Err(FactError::AskerUnknown {
                message: error.to_string(),
            })),
        }
    }

    /// Makes the read, or the write. A read that begins too late because of other reads of the same review is not over its
    /// part.
    async fn outcome(
        self: &Arc<Self>,
        at: &Address,
        encoded: &EncodedRequest,
        is_sealed: bool,
        deadline: Instant,
    ) -> LiveOutcome {
        let head = &encoded.head;
        let begin = |review| self.reviews.begin(head.beneficiary.clone(), review);
        let review = head.admission_review.map(begin);
        let outcome = self.made(at, encoded, is_sealed, deadline).await;
        outcome.map_err(|error| match error {
            FactError::LiveReadBusy { message, over_part } => {
                let is_own = review.as_ref().is_some_and(|review| review.is_over_part());
                limits::busy(&message, over_part && is_own)
            }
            error => error,
        })
    }

    async fn made(
        self: &Arc<Self>,
        at: &Address,
        encoded: &EncodedRequest,
        is_sealed: bool,
        deadline: Instant,
    ) -> LiveOutcome {
        let begun = Instant::now();
        let claim = ReadClaim {
            beneficiary: encoded.head.beneficiary.clone(),
            deadline,
        };
        let _waiting = self.waiting.try_admit(claim.beneficiary.clone())?;
        let held = encoded.decode(at, &self.large_requests, &claim).await?;
        let held = Arc::new(held);
        let request = &held.request;
        let span = tracing::Span::current();
        span.record("policy", request.policy.to_string());
        span.record("rule", &request.rule);
        span.record("variable", &request.variable);
        let answer = match &request.call {
            LiveCall::Existing { objects } => {
                let _permit = self.admit(request, deadline).await?;
                self.existing(request, objects, deadline).await
            }
            LiveCall::Write { target, object } => {
                let _permit = self.admit(request, deadline).await?;
                self.write(request, *target, object, deadline).await
            }
            LiveCall::MayWrite { objects } => {
                let _permit = self.admit(request, deadline).await?;
                self.may_write(&request.policy, objects).await
            }
            _ => return self.called(&held, is_sealed, deadline).await,
        }?;
        let result = anteroom_wire::body::encode_json(&answer);
        Ok(LiveReply {
            watcher: self.tools.watcher.clone(),
            age_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            shared: false,
            result: result.map_err(|error| failed(error.to_string()))?,
            secret: false,
        })
    }

    /// Waits until the namespace of the request's policy may begin one more read.
    async fn admit(
        &self,
        request: &LiveRequest,
        deadline: Instant,
    ) -> Result<Option<FairPermit<String>>, FactError> {
        match &*request.policy.namespace {
            // Scans have limits of their own, and take nothing from admission.
            _ if request.of_scan => Ok(None),
            "" => Ok(None),
            namespace => self.namespaces.admit(namespace, deadline).await.map(Some),
        }
    }

    async fn called(
        self: &Arc<Self>,
        held: &Arc<HeldRequest>,
        is_sealed: bool,
        deadline: Instant,
    ) -> LiveOutcome {
        let request = &held.request;
        let allowed = Arc::new(self.allowed_soon(held).await?);
        self.check_secrets(request, &allowed, is_sealed)?;
        let secret = allowed.secret;
        let _permit;
        let (fetched, shared) = match self.remembered(&allowed) {
            Some(remembered) => (remembered, false),
            None => {
                _permit = self.admit(request, deadline).await?;
                self.read_or_join(request, &allowed, deadline).await?
            }
        };
        let Fetch {
            answer,
            bytes,
            begun,
            _memory,
            _read,
        } = fetched;
        let claim = ReadClaim::of(request, deadline);
        let evaluated = self.evaluations.evaluate(held, answer, bytes, &claim).await;
        let result = match secret {
            true => evaluated.map_err(withheld)?,
            false => evaluated?,
        };
        Ok(LiveReply {
            watcher: self.tools.watcher.clone(),
            age_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            shared,
            result,
            secret,
        })
    }

    /// Reads, or joins an equal read that is under way. Returns whether it joined one. A joined read whose call began
    /// earlier than this may not know what was written before the reader asked. The reader then reads again, together
    /// with others that came meanwhile.
    async fn read_or_join(
        self: &Arc<Self>,
        request: &LiveRequest,
        allowed: &Arc<Allowed>,
        deadline: Instant,
    ) -> Result<(Fetch, bool), FactError> {
        let of_scan = request.of_scan;
        let (claim, asked) = (ReadClaim::of(request, deadline), Instant::now());
        // Of an image, metadata is kept for a while anyway.
        let is_call = matches!(allowed.target, ReadTarget::Call(_));
        // Admission does not wait in a scan's queue, nor one namespace in another's, though both read the same.
        let key = allowed
            .key()
            .map(|key| (of_scan, claim.beneficiary.clone(), key));
        loop {
            let (this, allowed, claim) = (Arc::clone(self), Arc::clone(allowed), claim.clone());
            let read = move || async move { this.read(&allowed, of_scan, &claim).await };
            let (shared, is_shared) = match &key {
                Some(key) => self.shared_reads.join(key.clone(), read),
                None => SharedReads::default().join((), read),
            };
            if is_shared {
                self.tools.metrics.shared();
            }
            let of_shared = shared.begun;
            let result = shared.result().await.unwrap_or_else(|| Err(ended()));
            let reads_again = match &result {
                // The first reader of a shared read had less time.
                Err(FactError::LiveReadBusy { .. }) => true,
                // Also an error: an object that was not found may be there since.
                Err(_) => is_call && of_shared < asked,
                Ok(fetched) => is_call && fetched.begun < asked,
            };
            match result {
                _ if is_shared && reads_again && Instant::now() < deadline => {}
                fetched => {
                    let mut fetched = fetched?;
                    fetched.begun = fetched.begun.min(of_shared);
                    return Ok((fetched, is_shared));
                }
            }
        }
    }

    async fn allowed_soon(&self, held: &HeldRequest) -> Result<Allowed, FactError> {
        // The values of a call are written out there.
        let allowed =
            |policy: &Policy| off_thread_if(held.is_large(), || Allowed::by(policy, &held.request));
        self.soon(&held.request.policy, allowed).await
    }

    /// Checks that a policy permits the read.
    pub(super) async fn permitted_soon(
        &self,
        key: &ObjectKey,
        check: impl Fn(&Policy) -> Result<(), Refusal>,
    ) -> Result<(), FactError> {
        let permitted = |policy: &Policy| {
            let permitted = check(policy);
            permitted.map_err(|refusal| failed(format!("policy `{key}`: {refusal}")))
        };
        self.soon(key, permitted).await
    }

    /// Returns what `check` says of a policy. A policy that was just applied may be known to the reader before it is known
    /// here.
    async fn soon<T>(
        &self,
        key: &ObjectKey,
        check: impl Fn(&Policy) -> Result<T, FactError>,
    ) -> Result<T, FactError> {
        let Some(mut changes) = self.policies.changes() else {
            return self.checked(key, &check).await;
        };
        let soon = async {
            loop {
                changes.mark_unchanged();
                if let Ok(checked) = self.checked(key, &check).await {
                    return Some(checked);
                }
                if changes.changed().await.is_err() {
                    return None;
                }
            }
        };
        match tokio::time::timeout(POLICY_WAIT, soon).await {
            Ok(Some(checked)) => Ok(checked),
            _ => self.checked(key, &check).await,
        }
    }

    async fn checked<T>(
        &self,
        key: &ObjectKey,
        check: &impl Fn(&Policy) -> Result<T, FactError>,
    ) -> Result<T, FactError> {
        let policy = self.policies.get(key).await;
        let policy = policy.ok_or_else(|| {
            failed(format!(
                "this watcher knows no policy `{key}` that compiles"
            ))
        })?;
        check(&policy)
    }

    /// Checks that a read of Secrets is allowed, and was asked for by somebody with a key.
    fn check_secrets(
        &self,
        request: &LiveRequest,
        allowed: &Allowed,
        is_sealed: bool,
    ) -> Result<(), FactError> {
        if !allowed.secret {
            return Ok(());
        }
        if !(self.tools.may_read_secrets)(&request.policy) {
            let reader = PolicyKind::describe(&request.policy);
            return Err(FactError::SecretForbidden { reader });
        }
        match is_sealed {
            true => Ok(()),
            false => Err(FactError::AskerUnknown {
                message: "this live read was not encrypted: start the service that asks with the same `--asker-keys-file` as this watcher".into(),
            }),
        }
    }

    /// Returns an image that was read before, which takes nobody's turn.
    fn remembered(&self, allowed: &Allowed) -> Option<Fetch> {
        match &allowed.target {
            ReadTarget::Image(wanted) => self.images.cached(wanted).map(Fetch::from),
            ReadTarget::Call(_) => None,
        }
    }

    /// Reads, once the limits permit it within the deadline of its first reader.
    pub(super) async fn read(
        &self,
        allowed: &Allowed,
        of_scan: bool,
        claim: &ReadClaim,
    ) -> FetchResult {
        let limits = match of_scan {
            true => &self.scans,
            false => &self.admission,
        };
        if let Some(remembered) = self.remembered(allowed) {
            return Ok(remembered);
        }
        let target = match &allowed.target {
            ReadTarget::Image(wanted) => {
                let permit = self.image_permits.admit(claim).await?;
                // A slow registry takes permits from images alone, of which scans take no more than their own.
                let _of_scan = match of_scan {
                    true => Some(limits.begin(claim).await?),
                    false => {
                        limits.turn(claim, &permit).await?;
                        None
                    }
                };
                let _under_way = self.tools.metrics.under_way();
                return self.images.read(wanted).await.map(Fetch::from);
            }
            ReadTarget::Call(target) => target,
        };
        let permit = limits.begin(claim).await?;
        let begun = Instant::now();
        let _under_way = self.tools.metrics.under_way();
        let (status, bytes) = self.call(allowed, target).await?;
        let (size, config_map) = (bytes.len(), allowed.config_map);
        let text = bytes.clone();
        let counted = move || parsed_bytes(&text).map_err(|fault| read_failed(&fault));
        let parsed_bytes = on_worker_if_large(size, counted).await?;
        let memory = self
            .large_answers
            .memory_for(size, parsed_bytes, claim)
            .await?;
        let answer = on_worker_if_large(size, move || match status {
            // As in Kyverno a body that is no JSON is null, beside its status.
            Some(status) => {
                let body = parse_or_null(&bytes).map_err(|fault| read_failed(&fault))?;
                Ok(service_answer(status, body))
            }
            None if config_map => as_config_map(&bytes),
            None => parse(&bytes).map_err(|fault| read_failed(&fault)),
        });
        Ok(Fetch {
            answer: Arc::new(answer.await?),
            bytes: size,
            begun,
            _memory: memory,
            _read: Some(Arc::new(permit)),
        })
    }

    /// Makes the call: its body, and its status where any status is an answer. It is not cut short with its first reader's
    /// deadline: others may have joined.
    async fn call(
        &self,
        allowed: &Allowed,
        target: &CallTarget,
    ) -> Result<(Option<u16>, Bytes), FactError> {
        let (caller, data) = (&self.tools.caller, allowed.data.as_ref());
        let bytes_max = self.tools.args.live_read_bytes_max;
        let fetched = match target {
            CallTarget::Service(service) if allowed.takes_any_status => {
                let asked = caller.ask(service, data, bytes_max, CALL_TIMEOUT).await;
                asked.map(|(status, bytes)| (Some(status), bytes))
            }
            target => {
                let nothing_known = Validators::default();
                let fetched = caller.fetch(target, data, &nothing_known, bytes_max, CALL_TIMEOUT);
                match fetched.await {
                    Ok(CallAnswer::Body(bytes, _)) => Ok((None, bytes)),
                    // Only where something is known.
                    Ok(CallAnswer::Unchanged) => return Err(ended()),
                    Err(fault) => Err(fault),
                }
            }
        };
        fetched.map_err(|fault| read_failed(&fault))
    }
}

/// An outcome as bytes; one that is too large is an error in its place.
fn encode(outcome: &LiveOutcome) -> Bytes {
    live::encode_outcome(outcome).unwrap_or_else(|error| {
        let too_large = Err(FactError::BudgetExceeded {
            message: format!("its result: {error}"),
        });
        live::encode_outcome(&too_large).unwrap_or_default()
    })
}

/// `{data, metadata}`, pruned as in a view.
fn as_config_map(bytes: &[u8]) -> Result<Value, FactError> {
    let object = prune(bytes, "v1", "ConfigMap");
    let mut object = object.map_err(|error| failed(error.to_string()))?;
    let data = object.remove("data").unwrap_or_else(|| json!({}));
    let metadata = object.remove("metadata").unwrap_or_else(|| json!({}));
    Ok(json!({"data": data, "metadata": metadata}))
}

/// Work over so many bytes, where it holds up nobody.
pub(super) async fn on_worker_if_large<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> Result<T, FactError> + Send + 'static,
) -> Result<T, FactError> {
    if bytes <= INLINE_BYTES_MAX {
        return work();
    }
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(ended()))
}

fn record(outcome: &LiveOutcome) {
    let span = tracing::Span::current();
    match outcome {
        Ok(reply) => {
            span.record("shared", reply.shared);
            span.record("age_ms", reply.age_ms);
        }
        Err(error) => {
            span.record("error", error.code().as_str());
        }
    }
}
