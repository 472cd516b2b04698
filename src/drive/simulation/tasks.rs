//! Tasks as the table of compensations holds them: one that lives for one thing, taken by a lease, handed on when its
//! worker dies.

use super::world::{End, Task, Try, World};
use crate::compensation::{Action, TaskStatus};
use crate::drive::decide::Remedy;

/// Seconds that a worker has a task before it counts as dead.
const LEASE: i64 = 25;
/// Claims beyond the schedule that may be lost with their workers.
const MAX_LOST: i32 = 3;

/// How a try ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drive {
    Done,
    Again,
    /// Others come before it.
    Untried,
}

impl World {
    pub(super) fn alive(&mut self, action: Action, subject: usize) -> Option<&mut Task> {
        self.tasks
            .iter_mut()
            .find(|task| task.action == action && task.subject == subject && task.status != TaskStatus::Dead)
    }

    /// Writes a task, unless one for the same thing lives.
    pub(super) fn append(&mut self, action: Action, subject: usize, due_at: i64) {
        self.is_touched = true;
        if self.alive(action, subject).is_some() {
            return;
        }
        self.tasks_made += 1;
        let (id, status) = (self.tasks_made, TaskStatus::Ready);
        self.tasks.push(Task { id, action, subject, status, tries: 0, claims: 0, due_at });
    }

    /// Writes a task that is due now, or takes the one that lives from whoever is at it.
    pub(super) fn append_anew(&mut self, action: Action, subject: usize) {
        let now = self.now;
        if let Some(task) = self.alive(action, subject)
            && task.status == TaskStatus::Running
        {
            (task.status, task.claims, task.tries, task.due_at) =
                (TaskStatus::Ready, task.claims + 1, 0, now);
        }
        self.append(action, subject, now);
    }

    /// The thing came to its end another way.
    pub(super) fn finish_by_subject(&mut self, action: Action, subject: usize) {
        self.is_touched = true;
        let is_it = |task: &Task| task.action == action && task.subject == subject;
        self.tasks.retain(|task| !(is_it(task) && task.status != TaskStatus::Dead));
    }

    /// The call that a task guards has ended.
    pub(super) fn make_due(&mut self, action: Action, subject: usize) {
        let now = self.now;
        if let Some(task) = self.alive(action, subject)
            && task.status == TaskStatus::Ready
        {
            task.due_at = if task.tries == 0 { now + 1 } else { task.due_at.max(now + 1) };
        }
    }

    /// Takes one of the due tasks, also of a worker that died.
    pub(super) fn claim(&mut self, pick: usize) -> Option<Try> {
        let now = self.now;
        let is_due = |task: &Task| task.status != TaskStatus::Dead && task.due_at <= now;
        let due = self.tasks.iter().filter(|task| is_due(task)).count();
        if due == 0 {
            return None;
        }
        let task = self.tasks.iter_mut().filter(|task| is_due(task)).nth(pick % due)?;
        task.status = TaskStatus::Running;
        (task.tries, task.claims) = (task.tries + 1, task.claims + 1);
        task.due_at = now + LEASE;
        let &mut Task { id, tries, claims: claim, action, subject, .. } = task;
        let of = Try { id, tries, claim, action, subject };
        let has_lost_too_many =
            tries > MAX_LOST && (self.rules.retry_after)(action, tries - MAX_LOST).is_none();
        if has_lost_too_many {
            self.give_up(of);
            return None;
        }
        Some(of)
    }

    /// Whether whoever made that try still has its task: only then may money be asked to go out, or a refusal be written.
    /// A look and the call behind it are one step here; between them there is no more than the way of a call to its channel,
    /// which may be long too.
    pub(super) fn is_held(&self, of: Option<Try>) -> bool {
        of.is_none_or(|of| self.tasks.iter().any(|task| (self.rules.is_held)(task, of)))
    }

    /// Writes down how a try ended; one that was taken over meanwhile writes nothing.
    pub(super) fn end(&mut self, of: Option<Try>, drive: Drive) {
        let Some(of) = of else { return };
        let pause = match drive {
            Drive::Done => {
                self.done.push((of.action, of.subject));
                None
            }
            Drive::Again => (self.rules.retry_after)(of.action, of.tries),
            Drive::Untried => Some(1),
        };
        if drive == Drive::Again && pause.is_none() {
            return self.give_up(of);
        }
        let again = pause.map(|pause| self.now + pause);
        let end = End { of, again, is_untried: drive == Drive::Untried };
        self.write_end(end);
        if end.is_untried {
            self.put_back = Some(end);
        }
    }

    /// The row of the dead task is the open exception. A thing that has come to its end leaves neither.
    fn give_up(&mut self, of: Try) {
        let remedy = (self.rules.remedy)(of.action, &self.facts(of.action, of.subject));
        if remedy == Remedy::Nothing {
            self.done.push((of.action, of.subject));
            return self.write_end(End { of, again: None, is_untried: false });
        }
        let is_held = self.rules.is_held;
        if let Some(task) = self.tasks.iter_mut().find(|task| is_held(task, of)) {
            task.status = TaskStatus::Dead;
            self.is_touched = true;
        }
    }

    /// The thing comes to its end, although its task may have been given up before.
    pub(super) fn settle_given_up(&mut self, action: Action, subject: usize) {
        let is_it = |task: &Task| task.thing() == (action, subject) && task.status == TaskStatus::Dead;
        self.tasks.retain(|task| !is_it(task));
    }

    pub(super) fn write_end(&mut self, End { of, again, is_untried }: End) {
        let is_held = self.rules.is_held;
        let Some(place) = self.tasks.iter().position(|task| is_held(task, of)) else { return };
        self.is_touched = true;
        let Some(due_at) = again else {
            self.tasks.swap_remove(place);
            return;
        };
        let task = &mut self.tasks[place];
        (task.status, task.due_at) = (TaskStatus::Ready, due_at);
        task.tries -= i32::from(is_untried);
    }

    /// An operator has what was given up tried again.
    pub(super) fn revive(&mut self) {
        let now = self.now;
        let mut alive: Vec<(Action, usize)> = Vec::new();
        alive.extend(self.tasks.iter().filter(|task| task.status != TaskStatus::Dead).map(Task::thing));
        // Where another task was written since, that one drives.
        self.tasks.retain(|task| task.status != TaskStatus::Dead || !alive.contains(&task.thing()));
        for task in self.tasks.iter_mut().filter(|task| task.status == TaskStatus::Dead) {
            (task.status, task.tries, task.due_at) = (TaskStatus::Ready, 0, now);
        }
        self.is_touched = true;
    }
}

impl Task {
    pub(super) fn thing(&self) -> (Action, usize) {
        (self.action, self.subject)
    }
}
