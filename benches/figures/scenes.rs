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

/// Plays scenes one after the other, each where it is wanted, and tells the table how it went.
macro_rules! in_turn {
    ($stage:ident, $is_wanted:ident; $($name:literal => $scene:path,)+) => {
        $(if $is_wanted($name) {
            let outcome = $scene($stage).await;
            $stage.table.heard($name, outcome);
        })+
    };
}

/// The one that needs tables of its own.
pub const GROWTH: &str = "growth";

/// Whether a name contains one of the words; every name, without words.
pub fn is_wanted(words: &[String], name: &str) -> bool {
    words.is_empty() || words.iter().any(|word| name.contains(word.as_str()))
}

/// Plays those that are wanted, but for [`GROWTH`]. A scene that fails is named in the
/// table, and those behind it are played: a run of more than an hour is not lost by one of them.
pub async fn play(stage: &mut Stage, is_wanted: &impl Fn(&str) -> bool) -> Result<(), Failure> {
    requests::warm_up(stage).await?;
    for scene in requests::SCENES.iter().filter(|scene| is_wanted(scene.name)) {
        let outcome = scene.play(stage).await;
        stage.table.heard(scene.name, outcome);
    }
    in_turn!(stage, is_wanted;
        "usage" => usage::hold_and_confirm,
        "refunds" => refunds::driven,
        "instances" => instances::more_over_one,
        "overhead" => overhead::of_lock_and_key,
        "storm" => crowds::storm_on_one_order,
        "storm" => crowds::others_beside_a_storm,
        "half-open" => crowds::others_beside_half_open,
        "rush" => rush::against_the_peak,
        "timeouts" => timeouts::all_at_once,
        "settlement in batch" => settlements::in_batch,
        "events" => events::throughput,
        "freshness" => events::freshness,
        "compensation" => compensation::tasks_at_once,
        "lateness" => timeouts::lateness,
        // Last: what they leave in the tables would be beside whatever is measured after them.
        "pending timeouts" => growth::of_timeouts,
        "a long look" => growth::of_a_long_look,
        "done rows" => growth::of_what_is_done,
    );
    stage.note_memory()
}

/// Plays [`GROWTH`].
pub async fn grow(stage: &mut Stage) -> Result<(), Failure> {
    requests::warm_up(stage).await?;
    let outcome = growth::of_tables(stage).await;
    stage.table.heard(GROWTH, outcome);
    Ok(())
}
