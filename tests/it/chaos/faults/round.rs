//! Kinds that take turns.

use crate::support::Chance;

/// Each kind comes as often as it stands here before any comes again, in an order of chance: of every kind there is
/// some in a story that is long enough.
pub struct Round<T> {
    all: Vec<T>,
    left: Vec<T>,
}

impl<T: Copy> Round<T> {
    pub fn of(all: &[T]) -> Self {
        Self { all: all.to_vec(), left: Vec::new() }
    }

    /// One that comes before all others, whatever the dice say.
    pub fn beginning_with(first: T, all: &[T]) -> Self {
        Self { all: all.to_vec(), left: vec![first] }
    }

    pub fn draw(&mut self, chance: &mut Chance) -> T {
        if self.left.is_empty() {
            self.left.clone_from(&self.all);
        }
        self.left.swap_remove(chance.one_of(self.left.len()))
    }

    pub fn kinds(&self) -> &[T] {
        &self.all
    }
}

#[test]
fn each_kind_has_its_turns_before_any_comes_again() {
    let (mut chance, mut round) = (Chance::new(), Round::beginning_with('z', &['a', 'b', 'b', 'z']));
    assert_eq!(round.draw(&mut chance), 'z');
    for _ in 0..20 {
        let mut drawn = [(); 4].map(|()| round.draw(&mut chance));
        drawn.sort_unstable();
        assert_eq!(drawn, ['a', 'b', 'b', 'z']);
    }
}
