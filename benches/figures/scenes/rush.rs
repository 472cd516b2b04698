//! Many times the clients that the service works best with: what it gets done all the same, how soon the others hear
//! that there is no place, what channels notice, and when all is well again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use payonce::infra::descriptors;

use super::requests::{AHEAD_PER_SECOND, WEBHOOK, pay_url_request};
use crate::insist::{self, Ahead, Manner, Rush};
use crate::load::{self, Client, Order};
use crate::stage::Stage;
use crate::table::{Sample, Target, median, percentile_ms};
use crate::{Failure, seed};

/// Clients among whom is the number at which the service gets most done.
const CALM: [usize; 3] = [64, 256, 512];
/// Clients of the rushes that keep to what they are told.
const POLITE: [usize; 2] = [4096, 8192];
/// Those of one that does not, and how soon they ask again.
const RUDE: (usize, Duration) = (4096, Duration::from_millis(100));
/// A rush lasts so many windows: those who are turned away first come back a few times.
const WINDOWS: u32 = 3;
/// Pause between two callbacks beside a rush.
const CALLBACK_EVERY: Duration = Duration::from_millis(10);
/// Seconds within which all must be well again.
const WELL_WITHIN: u32 = 5;
/// What part of a calm rate is well.
const WELL: f64 = 0.9;

/// One round's figures of a rush.
#[derive(Debug)]
struct Figures {
    kept_percent: f64,
    refusal_p95_ms: f64,
    refusal_p99_ms: f64,
    /// Of the clients' side by itself.
    late_p99_ms: f64,
    callback_p99_ms: f64,
    grown_mib: f64,
    well_after_secs: f64,
    /// What the best of the calm crowds gets behind the rush, of what it got before.
    calm_again_percent: f64,
}

/// Rushes, over the best of three calm crowds.
pub async fn against_the_peak(stage: &mut Stage) -> Result<(), Failure> {
    if descriptors::room_for(2 * POLITE[1]) < POLITE[1] {
        return Err("too few file descriptors for so many clients".into());
    }
    for clients in POLITE {
        let figures = rounds(stage, clients, Manner::AsTold).await?;
        let name = format!("rush of {clients}");
        note(stage, &name, &figures, [Target::Least(90.0), Target::Most(20.0)]);
    }
    let (clients, pause) = RUDE;
    let figures = rounds(stage, clients, Manner::After(pause)).await?;
    let name = format!("rush of {clients} who ask again after {} ms", pause.as_millis());
    note(stage, &name, &figures, [Target::Information; 2]);
    Ok(())
}

fn note(stage: &mut Stage, name: &str, figures: &[Figures], [kept, refused]: [Target; 2]) {
    let of = |value: fn(&Figures) -> f64| median(figures.iter().map(value));
    let table = &mut stage.table;
    table.value(&format!("{name}: served, of the peak"), of(|f| f.kept_percent), "percent", kept);
    table.value(&format!("{name}: turned away, p95"), of(|f| f.refusal_p95_ms), "ms", Target::Information);
    table.value(&format!("{name}: turned away, p99"), of(|f| f.refusal_p99_ms), "ms", refused);
    table.value(
        &format!("{name}: its clients' own delay, p99"),
        of(|f| f.late_p99_ms),
        "ms",
        Target::Information,
    );
    table.value(&format!("{name}: callbacks, p99"), of(|f| f.callback_p99_ms), "ms", Target::Information);
    table.value(&format!("{name}: memory grown by"), of(|f| f.grown_mib), "MiB", Target::Information);
    table.value(
        &format!("{name}: the peak behind it, of the one before"),
        of(|f| f.calm_again_percent),
        "percent",
        Target::Information,
    );
    let well = Target::Most(WELL_WITHIN.into());
    table.value(&format!("{name}: well again after"), of(|f| f.well_after_secs), "s", well);
}

async fn rounds(stage: &Stage, clients: usize, manner: Manner) -> Result<Vec<Figures>, Failure> {
    let mut figures = Vec::new();
    for round in 0..stage.settings.rounds {
        let is_rude = if matches!(manner, Manner::AsTold) { "p" } else { "r" };
        let name = format!("{is_rude}{clients}_{round}");
        figures.push(round_of(stage, &name, (clients, manner)).await?);
    }
    Ok(figures)
}

/// Requests of a round, whose orders are in the tables.
#[derive(Debug)]
struct Requests {
    before: [Arc<Vec<Vec<u8>>>; CALM.len()],
    rush: Vec<Vec<u8>>,
    callbacks: Callbacks,
    /// A second's each.
    after: Vec<Arc<Vec<Vec<u8>>>>,
    behind: [Arc<Vec<Vec<u8>>>; CALM.len()],
}

type Callbacks = std::vec::IntoIter<Vec<u8>>;

/// All of a round ahead of it: the first change of a page behind a checkpoint is logged whole, and no part of the round may
/// bear that alone.
async fn prepare(stage: &Stage, name: &str) -> Result<Requests, Failure> {
    let window = stage.settings.window;
    let requests =
        async |part: &str, window: Duration| pay_urls(stage, &format!("{name}{part}_"), window).await;
    let calm = async |part: &str| -> Result<_, Failure> {
        let mut crowds = [const { Vec::new() }; CALM.len()];
        for (crowd, clients) in crowds.iter_mut().zip(CALM) {
            *crowd = requests(&format!("{part}{clients}"), window).await?;
        }
        Ok(crowds.map(Arc::new))
    };
    let mut after = Vec::new();
    for second in 0..WELL_WITHIN {
        after.push(Arc::new(requests(&format!("w{second}"), Duration::from_secs(1)).await?));
    }
    let prepared = Requests {
        before: calm("c").await?,
        rush: requests("a", window * WINDOWS).await?,
        callbacks: WEBHOOK.prepare_as(stage, &format!("{name}b_")).await?.into_iter(),
        after,
        behind: calm("d").await?,
    };
    seed::settle(&stage.database_url).await?;
    Ok(prepared)
}

/// What crowds of [`CALM`] clients get, a second, beside the same callbacks.
async fn calm(
    stage: &Stage,
    requests: &[Arc<Vec<Vec<u8>>>; CALM.len()],
    callbacks: &mut Callbacks,
) -> Result<[f64; CALM.len()], Failure> {
    let (addr, window) = (stage.service.addr, stage.settings.window);
    let mut rates = [0.0; CALM.len()];
    for (rate, (requests, clients)) in rates.iter_mut().zip(requests.iter().zip(CALM)) {
        let crowd = stage.fire(requests, clients, Order::Once);
        let (run, _) = tokio::try_join!(crowd, callbacks_beside(addr, callbacks, window))?;
        *rate = Sample::from(&run).per_second;
    }
    Ok(rates)
}

/// The peak is what the best of the calm crowds gets before the rush and behind it: the machine is by a fifth faster or
/// slower a minute later.
async fn round_of(stage: &Stage, name: &str, (clients, manner): (usize, Manner)) -> Result<Figures, Failure> {
    let (addr, window) = (stage.service.addr, stage.settings.window * WINDOWS);
    let mut requests = prepare(stage, name).await?;
    let callbacks = &mut requests.callbacks;
    let _ahead = Ahead::go();
    let before = calm(stage, &requests.before, callbacks).await?;
    let held = stage.service.memory_mib("VmRSS")?;

    let rush = insist::rush(addr, requests.rush, clients, window, manner);
    let (rush, beside) = tokio::try_join!(rush, callbacks_beside(addr, callbacks, window))?;
    let grown_mib = stage.service.memory_mib("VmRSS")? - held;
    let well_after_secs = well_again(stage, &requests.after, callbacks, before[0]).await?;
    let behind = calm(stage, &requests.behind, callbacks).await?;

    let Rush { served, turned_away, late } = rush;
    let per_second = served.len() as f64 / window.as_secs_f64();
    let best = |rates: [f64; CALM.len()]| rates.into_iter().fold(1.0, f64::max);
    let (best_before, best_behind) = (best(before), best(behind));
    eprintln!(
        "{clients} clients: {per_second:.0}/s between {before:.0?}/s and {behind:.0?}/s in calm; {} turned away, p50 {} ms, p95 {}, \
         p99 {}; served in {} ms (p50)",
        turned_away.len(),
        percentile_ms(&turned_away, 50),
        percentile_ms(&turned_away, 95),
        percentile_ms(&turned_away, 99),
        percentile_ms(&served, 50),
    );
    Ok(Figures {
        kept_percent: 100.0 * per_second / f64::midpoint(best_before, best_behind),
        refusal_p95_ms: percentile_ms(&turned_away, 95),
        refusal_p99_ms: percentile_ms(&turned_away, 99),
        late_p99_ms: percentile_ms(&late, 99),
        callback_p99_ms: percentile_ms(&beside, 99),
        grown_mib,
        well_after_secs,
        calm_again_percent: 100.0 * best_behind / best_before,
    })
}

/// Requests for the links of orders that nobody asked for before, enough for so long.
async fn pay_urls(stage: &Stage, prefix: &str, window: Duration) -> Result<Vec<Vec<u8>>, Failure> {
    // A rush must not run out of them: twice as many as an ordinary run, which may.
    let count = i32::try_from(2 * AHEAD_PER_SECOND * window.as_secs())?;
    seed::fresh_orders(&stage.database_url, stage.clock.now(), prefix, count).await?;
    Ok((1..=count).map(|number| pay_url_request(stage, prefix, number)).collect())
}

/// What a channel and whoever looks after the process notice: their latencies, in order of size.
async fn callbacks_beside(
    addr: SocketAddr,
    callbacks: &mut Callbacks,
    window: Duration,
) -> Result<Vec<u32>, Failure> {
    let (mut client, closes, alive) =
        (Client::connect(addr).await?, Instant::now() + window, load::get("/livez"));
    let mut latencies = Vec::new();
    for callback in callbacks {
        let started = Instant::now();
        if started >= closes {
            break;
        }
        let taken = client.call(&callback).await?;
        latencies.push(u32::try_from(started.elapsed().as_micros())?);
        let lives = client.call(&alive).await?;
        if (taken, lives) != (200, 200) {
            return Err(
                format!("beside a rush: a callback was answered with {taken}, /livez with {lives}").into()
            );
        }
        tokio::time::sleep(CALLBACK_EVERY).await;
    }
    latencies.sort_unstable();
    Ok(latencies)
}

/// The end of the first second of nine tenths of the calm rate, after a rush.
async fn well_again(
    stage: &Stage,
    seconds: &[Arc<Vec<Vec<u8>>>],
    callbacks: &mut Callbacks,
    calm: f64,
) -> Result<f64, Failure> {
    let (ended, addr, second) = (Instant::now(), stage.service.addr, Duration::from_secs(1));
    for requests in seconds {
        let addrs = [addr];
        let crowd = load::fire(&addrs, requests, CALM[0], second, Order::Once);
        let (run, _) = tokio::try_join!(crowd, callbacks_beside(addr, callbacks, second))?;
        if Sample::from(&run).per_second >= WELL * calm {
            return Ok(ended.elapsed().as_secs_f64());
        }
    }
    Ok(f64::INFINITY)
}
