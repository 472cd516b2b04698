//! A call whose result is unknown: asked about first, made again only where the channel never saw it.

use super::CallError;

/// Which of both calls answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answerer {
    /// The call that makes it.
    Call,
    /// The question what became of it.
    Query,
}

/// Asks; makes the call again under the same number where the channel never saw it. A refusal then may only mean "done
/// already", so it counts when the channel still knows of none, and no earlier call can be on its way any more
/// (`has_settled`): one that comes late might be carried out behind it. A refusal to answer a question is no result.
pub async fn ask_redo_ask<S, Q, C>(
    ask: impl Fn() -> Q,
    redo: impl FnOnce() -> C,
    is_unseen: impl Fn(&S) -> bool,
    has_settled: bool,
) -> (Answerer, Result<S, CallError>)
where
    Q: Future<Output = Result<S, CallError>>,
    C: Future<Output = Result<S, CallError>>,
{
    match no_refusal(ask().await) {
        Ok(state) if is_unseen(&state) => {}
        known => return (Answerer::Query, known),
    }
    match make_then_ask(redo, ask, is_unseen).await {
        (answerer, refused) if !has_settled => (answerer, no_refusal(refused)),
        told => told,
    }
}

/// Makes the call. A refusal counts when the channel knows of none: it may only mean "done already".
pub async fn make_then_ask<S, Q, C>(
    make: impl FnOnce() -> C,
    ask: impl Fn() -> Q,
    is_unseen: impl Fn(&S) -> bool,
) -> (Answerer, Result<S, CallError>)
where
    Q: Future<Output = Result<S, CallError>>,
    C: Future<Output = Result<S, CallError>>,
{
    let made = make().await;
    if !matches!(made, Err(CallError::Refused(_))) {
        return (Answerer::Call, made);
    }
    match no_refusal(ask().await) {
        Ok(state) if is_unseen(&state) => (Answerer::Call, made),
        known => (Answerer::Query, known),
    }
}

fn no_refusal<S>(answer: Result<S, CallError>) -> Result<S, CallError> {
    match answer {
        Err(CallError::Refused(refusal)) => Err(CallError::Silent(refusal.to_string())),
        answer => answer,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::channels::Refusal;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum State {
        Unseen,
        Made,
    }

    fn refused<S>() -> Result<S, CallError> {
        Err(CallError::Refused(Refusal { code: "NO".to_owned(), message: "no".to_owned() }))
    }

    fn silent<S>() -> Result<S, CallError> {
        Err(CallError::Silent("nothing".to_owned()))
    }

    type Told = Result<State, CallError>;

    /// Gives who answered, what, and how many calls were made.
    async fn play(answers: Vec<Told>, call: Told) -> (Answerer, Told, usize) {
        play_when(true, answers, call).await
    }

    async fn play_when(has_settled: bool, answers: Vec<Told>, call: Told) -> (Answerer, Told, usize) {
        let (answers, calls) = (RefCell::new(answers.into_iter()), RefCell::new(0));
        let ask = || async { answers.borrow_mut().next().unwrap_or_else(silent) };
        let redo = || async {
            *calls.borrow_mut() += 1;
            call
        };
        let (answerer, told) = ask_redo_ask(ask, redo, |state| *state == State::Unseen, has_settled).await;
        let count = *calls.borrow();
        (answerer, told, count)
    }

    #[tokio::test]
    async fn only_what_the_channel_never_saw_is_made_again() {
        let told = play(vec![Ok(State::Made)], Ok(State::Made)).await;
        assert!(matches!(told, (Answerer::Query, Ok(State::Made), 0)));
        for unknown in [silent(), refused()] {
            let told = play(vec![unknown], Ok(State::Made)).await;
            assert!(
                matches!(told, (Answerer::Query, Err(CallError::Silent(_)), 0)),
                "no answer is no result"
            );
        }
        let told = play(vec![Ok(State::Unseen)], Ok(State::Made)).await;
        assert!(matches!(told, (Answerer::Call, Ok(State::Made), 1)));
        let told = play(vec![Ok(State::Unseen)], silent()).await;
        assert!(matches!(told, (Answerer::Call, Err(CallError::Silent(_)), 1)));
    }

    #[tokio::test]
    async fn a_refusal_counts_when_the_channel_still_knows_of_none() {
        let told = play(vec![Ok(State::Unseen), Ok(State::Made)], refused()).await;
        assert!(matches!(told, (Answerer::Query, Ok(State::Made), 1)), "it meant: done already");
        let told = play(vec![Ok(State::Unseen), Ok(State::Unseen)], refused()).await;
        assert!(matches!(told, (Answerer::Call, Err(CallError::Refused(_)), 1)));
        let told = play(vec![Ok(State::Unseen), silent()], refused()).await;
        assert!(matches!(told, (Answerer::Query, Err(CallError::Silent(_)), 1)));
        let told = play_when(false, vec![Ok(State::Unseen), Ok(State::Unseen)], refused()).await;
        assert!(
            matches!(told, (Answerer::Call, Err(CallError::Silent(_)), 1)),
            "an earlier call may come late"
        );
    }
}
