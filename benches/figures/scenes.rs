//! The scenes, one after the other, in the order of the limits page.

use super::Failure;
use super::stage::Stage;

mod compensation;
mod crowds;
mod events;
mod growth;
mod instances;
mod overhead;
mod refunds;
mod requests;
mod rush;
mod settlements;
mod timeouts;
mod usage;

/// Plays those whose name contains one of the words; all of them without words.
pub async fn play(stage: &mut Stage, wanted: &[String]) -> Result<(), Failure> {
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|word| name.contains(word.as_str()));
    requests::warm_up(stage).await?;
    for scene in requests::SCENES.iter().filter(|scene| is_wanted(scene.name)) {
        scene.play(stage).await.map_err(|error| format!("{}: {error}", scene.name))?;
    }
    if is_wanted("usage") {
        usage::hold_and_confirm(stage).await?;
    }
    if is_wanted("refunds") {
        refunds::driven(stage).await?;
    }
    if is_wanted("instances") {
        instances::more_over_one(stage).await?;
    }
    if is_wanted("overhead") {
        overhead::of_lock_and_key(stage).await?;
    }
    if is_wanted("storm") {
        crowds::storm_on_one_order(stage).await?;
        crowds::others_beside_a_storm(stage).await?;
    }
    if is_wanted("half-open") {
        crowds::others_beside_half_open(stage).await?;
    }
    if is_wanted("rush") {
        rush::against_the_peak(stage).await?;
    }
    if is_wanted("timeouts") {
        timeouts::all_at_once(stage).await?;
    }
    if is_wanted("settlement in batch") {
        settlements::in_batch(stage).await?;
    }
    if is_wanted("events") {
        events::throughput(stage).await?;
    }
    if is_wanted("freshness") {
        events::freshness(stage).await?;
    }
    if is_wanted("compensation") {
        compensation::tasks_at_once(stage).await?;
    }
    if is_wanted("lateness") {
        timeouts::lateness(stage).await?;
    }
    // Last: what they leave in the tables would be beside whatever is measured after them.
    if is_wanted("pending timeouts") {
        growth::of_timeouts(stage).await?;
    }
    if is_wanted("a long look") {
        growth::of_a_long_look(stage).await?;
    }
    if is_wanted("done rows") {
        growth::of_what_is_done(stage).await?;
    }
    if is_wanted("growth") {
        growth::of_tables(stage).await?;
    }
    stage.note_memory()
}
