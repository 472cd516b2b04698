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

/// Plays those whose name contains one of the words; all of them without words. A scene that fails is named in the
/// table, and those behind it are played: a run of more than an hour is not lost by one of them.
pub async fn play(stage: &mut Stage, wanted: &[String]) -> Result<(), Failure> {
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|word| name.contains(word.as_str()));
    requests::warm_up(stage).await?;
    for scene in requests::SCENES.iter().filter(|scene| is_wanted(scene.name)) {
        let outcome = scene.play(stage).await;
        stage.table.heard(scene.name, outcome);
    }
    if is_wanted("usage") {
        let outcome = usage::hold_and_confirm(stage).await;
        stage.table.heard("usage", outcome);
    }
    if is_wanted("refunds") {
        let outcome = refunds::driven(stage).await;
        stage.table.heard("refunds", outcome);
    }
    if is_wanted("instances") {
        let outcome = instances::more_over_one(stage).await;
        stage.table.heard("instances", outcome);
    }
    if is_wanted("overhead") {
        let outcome = overhead::of_lock_and_key(stage).await;
        stage.table.heard("overhead", outcome);
    }
    if is_wanted("storm") {
        let outcome = crowds::storm_on_one_order(stage).await;
        stage.table.heard("storm", outcome);
        let outcome = crowds::others_beside_a_storm(stage).await;
        stage.table.heard("storm", outcome);
    }
    if is_wanted("half-open") {
        let outcome = crowds::others_beside_half_open(stage).await;
        stage.table.heard("half-open", outcome);
    }
    if is_wanted("rush") {
        let outcome = rush::against_the_peak(stage).await;
        stage.table.heard("rush", outcome);
    }
    if is_wanted("timeouts") {
        let outcome = timeouts::all_at_once(stage).await;
        stage.table.heard("timeouts", outcome);
    }
    if is_wanted("settlement in batch") {
        let outcome = settlements::in_batch(stage).await;
        stage.table.heard("settlement in batch", outcome);
    }
    if is_wanted("events") {
        let outcome = events::throughput(stage).await;
        stage.table.heard("events", outcome);
    }
    if is_wanted("freshness") {
        let outcome = events::freshness(stage).await;
        stage.table.heard("freshness", outcome);
    }
    if is_wanted("compensation") {
        let outcome = compensation::tasks_at_once(stage).await;
        stage.table.heard("compensation", outcome);
    }
    if is_wanted("lateness") {
        let outcome = timeouts::lateness(stage).await;
        stage.table.heard("lateness", outcome);
    }
    // Last: what they leave in the tables would be beside whatever is measured after them.
    if is_wanted("pending timeouts") {
        let outcome = growth::of_timeouts(stage).await;
        stage.table.heard("pending timeouts", outcome);
    }
    if is_wanted("a long look") {
        let outcome = growth::of_a_long_look(stage).await;
        stage.table.heard("a long look", outcome);
    }
    if is_wanted("done rows") {
        let outcome = growth::of_what_is_done(stage).await;
        stage.table.heard("done rows", outcome);
    }
    if is_wanted("growth") {
        let outcome = growth::of_tables(stage).await;
        stage.table.heard("growth", outcome);
    }
    stage.note_memory()
}
