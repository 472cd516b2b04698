//! The rows of reconciliation, and what comparing reads of everybody's.

mod charge;
mod charged;
mod compare;
mod files;
mod items;
mod lines;
mod runs;

pub(super) use charge::{Rest, Spender, find_spender, lock_rest};
pub(super) use charged::{
    find_listing, find_possible_listing, is_listed, set_listed, take_listed_charges, take_unlisted_charges,
};
pub(super) use compare::{
    Beside, ListedPayment, OtherCurrencies, Walk, compare_lines, end_of_range, find_other_currencies,
    has_payments, has_sent_out, knows_any, walk_ours,
};
pub(super) use files::{delete_old_files, find_part, insert_part, measure};
pub(super) use items::{
    Move, claim_items, count_open, end_of_items, find_item, has_unfinished, list_items, lock_item,
    lock_standing, lock_unseen, move_item, release, spent, stands,
};
pub(super) use lines::{
    Neighbour, copy_lines, delete_forgotten_lines, delete_lines, forget_days, is_next_forgotten,
    list_payments, neighbours, stands_there,
};
pub(super) use runs::{
    Claimed, Daily, NewFile, NewRun, Progress, begin_again, begun_at, claim, count_refused, due_days,
    find_of_day, insert, list, list_progress, note_place, rest, set_status,
};
