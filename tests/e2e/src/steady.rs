//! An entry that stays while all around it changes, and a policy that is asked for it all the time.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    guard::{Asker, Decided, guard},
    stock::{Histories, NAMESPACES, NUMBERS, STOCK, Stock},
    world::World,
};

/// Its type.
pub const OF: Stock = STOCK[4];

/// The name of the entry, and of the policy.
pub const NAME: &str = "steady";

/// The most that a number may be late on a busy machine, unless its decision tells a higher age.
const LATE_MAX: Duration = Duration::from_secs(5);

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(20);

/// The entry.
pub fn entry() -> Value {
    json!({ "apiVersion": "kyverno.io/v2alpha1", "kind": "CachedContextEntry",
        "metadata": { "name": NAME },
        "spec": { "resource": { "group": OF.group, "kind": OF.plural } } })
}

/// The policy, which tells the numbers of the entry.
pub fn policy() -> Value {
    let context = json!({ "name": "value",
        "cachedContextEntry": { "name": NAME, "jmesPath": NUMBERS } });
    let condition = json!({ "key": "{{ value }}", "operator": "NotEquals", "value": "never" });
    guard(NAME, &context, "numbers={{ value }};", &condition)
}

/// The view of the entry.
pub fn view() -> String {
    format!("{}.v1.{}", OF.plural, OF.group)
}

/// Makes both, and waits until the policy is decided by them.
pub async fn begin(world: &World) -> anyhow::Result<Asker> {
    world.create(&entry()).await?;
    world.create(&policy()).await?;
    let asker = Asker::new(world).await?;
    asker.refused(NAME, "numbers=").await?;
    Ok(asker)
}

/// Asks until it is told to stop: each decision has numbers that are right. Says how many there were.
///
/// # Errors
/// A decision with a wrong number, or with none.
pub async fn ask(
    histories: &Histories,
    asker: &Asker,
    stop: &CancellationToken,
) -> anyhow::Result<usize> {
    let mut asked = 0;
    while !stop.is_cancelled() {
        let begun = Instant::now();
        let decided = asker.ask(NAME).await?;
        judge(histories, &decided, begun, Instant::now())?;
        asked += 1;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(asked)
}

fn judge(
    histories: &Histories,
    decided: &Decided,
    asked: Instant,
    answered: Instant,
) -> anyhow::Result<()> {
    let numbers = decided.message.split_once("numbers=");
    let (numbers, _) = numbers
        .and_then(|(_, rest)| rest.split_once(';'))
        .with_context(|| format!("{decided:?}"))?;
    let numbers: Vec<_> = numbers.split('/').collect();
    ensure!(numbers.len() == NAMESPACES.len(), "{decided:?}");
    let age_ms = decided.fact()["ageMs"].as_u64();
    let late_max = LATE_MAX.max(Duration::from_millis(age_ms.unwrap_or_default()));
    for (namespace, number) in NAMESPACES.iter().zip(numbers) {
        histories
            .judge(OF, namespace, number, asked, answered, late_max)
            .with_context(|| format!("{decided:?}"))?;
    }
    Ok(())
}
