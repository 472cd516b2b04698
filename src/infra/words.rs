//! States and other fixed words: one spelling for Rust, JSON, SQL and logs.

/// Declares an enum whose variants have one upper-case word each, the same in JSON, in SQL and in logs.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[derive(serde::Serialize, serde::Deserialize, sqlx::Type)]
        #[sqlx(type_name = "text")]
        pub enum $name {
            $($(#[$vmeta])* #[serde(rename = $word)] #[sqlx(rename = $word)] $variant,)+
        }

        impl $name {
            /// Every word there is, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word itself.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        // By hand: the derive does not see through a macro's literals, and would tell the variants' names.
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::schema::Type::String)
                    .enum_values(Some([$($word),+]))
                    .into()
            }
        }

        impl utoipa::ToSchema for $name {}

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

pub(crate) use words;

/// Walks every pair of a state and an event: these moves there are, and no others.
#[cfg(test)]
#[track_caller]
pub(crate) fn assert_moves<S, E>(
    states: &[S],
    events: &[E],
    allowed: &[(S, E, S)],
    after: impl Fn(S, E) -> Option<S>,
) where
    S: Copy + PartialEq + std::fmt::Debug + std::fmt::Display,
    E: Copy + PartialEq + std::fmt::Display,
{
    for &from in states {
        for &event in events {
            let to = allowed.iter().find(|(f, e, _)| (*f, *e) == (from, event)).map(|(_, _, to)| *to);
            assert_eq!(after(from, event), to, "{from} by {event}");
        }
    }
}
