//! Asking about many orders at once, and by halves where that is too much for the source.

use super::{Question, Quote, RateSource, SourceError};

/// Silences in a row behind which the source is asked about somebody else: from 500 orders nine lead to one alone, and a
/// source that is away is asked hardly more than that.
const MANY: usize = 10;

/// What the source says about each, in their order; nothing about those that it is wrong about, or silent about although it
/// speaks of others. Each silence may cost a deadline: so many in a row are only gone past where the source, asked about one
/// order from elsewhere, still speaks.
///
/// The first half is asked to its end before the second: what is too much at once is then soon little enough. `settled` are
/// orders of before, where they are given, for when it says nothing about all of these.
///
/// # Errors
/// When it is away, or has no answer for now.
pub(in crate::settlement) async fn ask_by_halves(
    source: &dyn RateSource,
    questions: &[Question],
    settled: &[Question],
) -> Result<Vec<Option<Quote>>, SourceError> {
    let (mut waiting, mut said, mut left_out) =
        (vec![questions], Vec::with_capacity(questions.len()), Vec::new());
    let (mut has_spoken, mut known, mut silences) = (false, settled, 0);
    while let Some(asked) = waiting.pop().filter(|asked| !asked.is_empty()) {
        let error = match source.quotes(asked).await {
            Ok(quotes) => {
                said.extend(quotes.into_iter().map(Some));
                (has_spoken, known, silences) = (true, &asked[..1], 0);
                continue;
            }
            Err(error) => error,
        };
        match &error {
            SourceError::Wrong(_) => (has_spoken, silences) = (true, 0),
            SourceError::Silent(_) => silences += 1,
            SourceError::NotNow(_) => return Err(error),
        }
        if silences == MANY {
            let others: Vec<&Question> = known.iter().chain(elsewhere(questions)).collect();
            if !speaks_of_one(source, others).await {
                return Err(error);
            }
            (has_spoken, silences) = (true, 0);
        }
        if let [one] = asked {
            left_out.push((one.order.member(), error));
            said.push(None);
        } else {
            let (first, second) = asked.split_at(asked.len() / 2);
            waiting.extend([second, first]);
        }
    }
    let is_unheard = !has_spoken && !left_out.is_empty();
    if is_unheard
        && !speaks_of_one(source, settled).await
        && let Some((_, silence)) = left_out.pop()
    {
        return Err(silence);
    }
    for (order, error) in left_out {
        tracing::warn!(%error, order.no = %order, "the source of rates says nothing of use about {order}");
    }
    Ok(said)
}

/// Orders of other parts than the first, with which it begins.
fn elsewhere(questions: &[Question]) -> impl Iterator<Item = &Question> {
    [2, 3, 4].into_iter().filter_map(|quarters| questions[..questions.len() * quarters / 4].last())
}

/// Whether it says anything about one of these, asked alone. Over any of them it may fall, or have no place for it any more: that
/// says nothing of the next one.
async fn speaks_of_one(source: &dyn RateSource, orders: impl IntoIterator<Item = &Question>) -> bool {
    for order in orders {
        match source.quotes(std::slice::from_ref(order)).await {
            Ok(_) | Err(SourceError::Wrong(_)) => return true,
            Err(SourceError::Silent(_) | SourceError::NotNow(_)) => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;

    use super::*;
    use crate::orders::OrderKey;
    use crate::settlement::terms::Factor;

    /// Says nothing about more than so many at once, nor where one of those is among them that it falls over; what is gone it
    /// refuses as if we were nobody.
    struct Weak<F> {
        most: usize,
        falls_over: F,
        gone: Range<usize>,
        calls: AtomicUsize,
    }

    #[async_trait]
    impl<F: Fn(usize) -> bool + Send + Sync> RateSource for Weak<F> {
        async fn quotes(&self, questions: &[Question]) -> Result<Vec<Quote>, SourceError> {
            self.calls.fetch_add(1, Ordering::SeqCst);
            if questions.iter().any(|question| self.gone.contains(&number(question))) {
                return Err(SourceError::NotNow("no such order".to_owned()));
            }
            let falls = |question: &Question| (self.falls_over)(number(question));
            if questions.len() > self.most || questions.iter().any(falls) {
                return Err(SourceError::Silent("no answer".to_owned()));
            }
            Ok(questions.iter().map(|question| question.listed.clone()).collect())
        }
    }

    /// Of no order that stories ask about first.
    const GONE: Range<usize> = 2_000..2_010;
    /// No order is settled.
    const NONE: Range<usize> = 0..0;

    fn number(question: &Question) -> usize {
        question.order.order_no.as_str().parse().unwrap()
    }

    fn question(number: usize) -> Question {
        let order =
            OrderKey { merchant_id: "m".parse().unwrap(), order_no: number.to_string().parse().unwrap() };
        let listed = Quote { rates: Vec::new(), factor: Factor::ONE };
        Question { order, user_id: "u".parse().unwrap(), lines: Vec::new(), listed }
    }

    /// How many of so many orders have rates, and how often the source was asked; each has its own, or none where it falls
    /// over that one.
    async fn asked(
        count: usize,
        most: usize,
        settled: Range<usize>,
        falls_over: impl Fn(usize) -> bool + Send + Sync,
    ) -> (Option<usize>, usize) {
        let (questions, settled): (Vec<_>, Vec<_>) =
            ((0..count).map(question).collect(), settled.map(question).collect());
        let source = Weak { most, falls_over, gone: GONE, calls: AtomicUsize::new(0) };
        let said = ask_by_halves(&source, &questions, &settled).await.ok();
        for (number, quote) in said.iter().flatten().enumerate() {
            assert_eq!(quote.is_none(), (source.falls_over)(number), "{number}");
        }
        let quoted = said.map(|said| {
            assert_eq!(said.len(), count);
            said.iter().flatten().count()
        });
        (quoted, source.calls.into_inner())
    }

    #[tokio::test]
    async fn a_source_that_can_do_little_at_once_says_all_of_it_little_by_little() {
        for most in [1, 2, 30, 62, 499, 500] {
            let (quoted, calls) = asked(500, most, NONE, |_| false).await;
            assert_eq!(quoted, Some(500), "{most} at once");
            assert!(calls <= 4 * 500_usize.div_ceil(most), "{calls} questions of {most}");
        }
    }

    #[tokio::test]
    async fn whoever_it_falls_over_is_left_out_wherever_they_stand() {
        // Spread evenly: one of twenty, of ten, every second one.
        for each in [20, 10, 2] {
            for at in [0, each - 1] {
                let (quoted, _) = asked(500, 500, NONE, |number| number % each == at).await;
                assert_eq!(quoted, Some(500 - 500 / each), "each {each}th from {at}");
            }
        }
        // Neighbours: the first, the last, in between.
        for fatal in [0..9, 491..500, 0..240, 260..500, 100..400] {
            let (quoted, _) = asked(500, 500, NONE, |number| fatal.contains(&number)).await;
            assert_eq!(quoted, Some(500 - fatal.len()), "{fatal:?}");
        }
        // And whoever are few.
        assert_eq!(asked(2, 500, NONE, |number| number == 0).await.0, Some(1));
    }

    #[tokio::test]
    async fn a_source_that_is_away_is_asked_a_few_times_only() {
        for (count, most) in [(1, 1), (2, 3), (5, 9), (500, 13)] {
            let (quoted, calls) = asked(count, 500, NONE, |_| true).await;
            assert!(quoted.is_none() && calls <= most, "{calls} questions about {count}");
        }
        assert_eq!(asked(0, 500, NONE, |_| true).await.0, Some(0));
    }

    #[tokio::test]
    async fn where_it_speaks_of_what_was_settled_before_it_is_these_that_it_falls_over() {
        for count in [1, 5, 500] {
            // Whether it is the first that it speaks of, or the last one behind others that it falls over, or that are gone.
            for settled in [1_000..1_001, 998..1_001, 2_008..2_011] {
                let falls_over = |number: usize| number < count || (998..1_000).contains(&number);
                let (quoted, _) = asked(count, 500, settled.clone(), falls_over).await;
                assert_eq!(quoted, Some(0), "none of {count}, and before {settled:?}");
            }
            for settled in [1_000..1_003, 2_000..2_003, 2_009..2_012] {
                let (quoted, calls) = asked(count, 500, settled.clone(), |_| true).await;
                assert!(quoted.is_none() && calls <= 16, "away: {calls} questions, and before {settled:?}");
            }
        }
    }
}
