//! The environment: whatever stands in it, the start goes on or stops with the name of a variable, and no secret is told.

use payonce::config::{Config, Env, Strictness, VARIABLES};
use payonce::infra::redis::RedisServers;
use proptest::prelude::*;

use super::cases;

/// Stands in every secret that is drawn.
const HUSH: &str = "hUsH7";

/// What may stand in a variable, right or not. Those that name files are left alone.
fn value(place: usize) -> BoxedStrategy<String> {
    let variable = &VARIABLES[place];
    let number =
        prop_oneof![any::<i64>().prop_map(|n| n.to_string()), (0..100_000_i64).prop_map(|n| n.to_string())];
    let right = Just(variable.default.to_owned());
    let words = "[a-z:/@.,=0-9 -]{0,40}";
    match variable.name {
        "REDIS_URL" => redis_url().boxed(),
        "ADMIN_TOKENS" => admin_tokens().boxed(),
        "DATABASE_URL" => pattern(&format!(
            "(postgres|mysql|http)://u:{HUSH}@[a-z.]{{0,8}}(:[0-9]{{0,6}})?(/[a-z]{{0,5}})?"
        )),
        _ if variable.is_secret => pattern(&format!("{HUSH}\\PC{{0,40}}")),
        _ => prop_oneof![3 => right, 2 => number, 2 => words, 1 => "\\PC{0,20}"].boxed(),
    }
}

fn pattern(pattern: &str) -> BoxedStrategy<String> {
    prop::string::string_regex(pattern).expect("a pattern").boxed()
}

fn redis_url() -> impl Strategy<Value = String> {
    let node = prop_oneof![
        Just(format!("redis://:{HUSH}@a:6379/0")),
        Just(format!("rediss://u:{HUSH}@b")),
        Just(format!("redis+sentinel://:{HUSH}@a,[::1]:7/m/0?sentinel_password={HUSH}")),
        Just(format!("redis+sentinel://u:{HUSH}@/m")),
        pattern(&format!(
            "(redis|rediss|http|redis\\+sentinel):/?/?(u?:{HUSH}@)?[a-z\\[\\]:0-9.]{{0,10}}(/[a-z0-9]{{0,4}}){{0,2}}(\\?[a-z_=]{{0,20}})?"
        )),
        // The way to a socket is its name, whatever it looks like.
        pattern(&format!("(redis\\+)?unix:/?/?(/[a-z0-9]{{0,4}}){{0,2}}(\\?pass={HUSH})?")),
    ];
    prop::collection::vec(node, 1..5).prop_map(|nodes| nodes.join(","))
}

fn admin_tokens() -> impl Strategy<Value = String> {
    let entry = pattern(&format!("(viewer|operator|root)?(@[a-z]{{0,5}})?:?({HUSH}[a-z0-9]{{0,30}})?"));
    prop::collection::vec(entry, 0..4).prop_map(|entries| entries.join(","))
}

/// Some variables with what stands in them.
fn settings() -> impl Strategy<Value = Vec<(usize, String)>> {
    let one = (0..VARIABLES.len())
        .prop_filter("files are left alone", |place| VARIABLES[*place].name != "SSL_CERT_FILE")
        .prop_flat_map(|place| value(place).prop_map(move |value| (place, value)));
    prop::collection::vec(one, 0..12)
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn any_environment_is_taken_or_refused_by_name(given in settings(), is_dev in any::<bool>()) {
        let strictness = if is_dev { Strictness::Dev } else { Strictness::Strict };
        let mut env = Env::of(strictness, [
            ("DATABASE_URL", "postgres://u@h/d".to_owned()),
            ("REDIS_URL", "redis://h".to_owned()),
        ]);
        for (place, value) in &given {
            env.set(VARIABLES[*place].name, value.clone());
        }
        match Config::read(&env) {
            Ok(config) => {
                let told = format!("{config:?}");
                prop_assert!(!told.contains(HUSH), "{}", told);
            }
            Err(error) => {
                prop_assert!(VARIABLES.iter().any(|variable| variable.name == error.name), "{:?}", error);
                let told = error.to_string();
                prop_assert!(!told.contains(HUSH), "{}", told);
            }
        }
    }

    #[test]
    fn no_address_of_redis_breaks_its_reader_or_shows_a_password(text in prop_oneof![redis_url().boxed(), "\\PC{0,80}".boxed()]) {
        let told = match text.parse::<RedisServers>() {
            Ok(servers) => {
                // A majority needs three, and none of them twice.
                if let RedisServers::Quorum(nodes) = &servers {
                    prop_assert!(nodes.len() >= 3);
                }
                format!("{servers:?}")
            }
            Err(problem) => problem,
        };
        prop_assert!(!told.contains(HUSH), "{} tells {}", text, told);
    }
}
