use super::*;

const LONG: &str = "a-secret-of-more-than-24-bytes";

fn complete() -> Vec<(&'static str, String)> {
    vec![
        ("DATABASE_URL", "postgres://u:p@localhost/payonce".into()),
        ("REDIS_URL", "redis://localhost".into()),
        ("ADMIN_TOKENS", format!("operator@anna:{LONG},viewer:{LONG}-to-look")),
        ("ENCRYPTION_KEY", LONG.into()),
        ("SANDBOX_SECRET", LONG.into()),
    ]
}

fn read_with(name: &'static str, value: &str) -> Result<Config, ConfigError> {
    let mut env = Env::of(Strictness::Strict, complete());
    env.set(name, value);
    Config::read(&env)
}

#[test]
fn a_complete_environment_is_read() {
    let config = Config::read(&Env::of(Strictness::Strict, complete())).unwrap();
    assert_eq!(config.admin.tokens[0].name, "anna");
    assert_eq!(config.admin.tokens[1].role, Role::Viewer);
    assert_eq!(config.http.public_url, None);
    assert_eq!(config.orders.timeout_secs, 1800);
}

#[test]
fn a_wrong_variable_is_named_with_what_was_expected() {
    let cases = [
        ("DATABASE_URL", ""),
        ("DATABASE_URL", "mysql://x/y"),
        ("DATABASE_URL", "postgres:u:hush-hush@host/payonce"),
        ("DATABASE_URL", "postgres:/u:hush-hush@host/payonce"),
        ("AMQP_URL", "amqp:u:hush-hush@host"),
        ("REDIS_URL", "nonsense"),
        ("REDIS_URL", "redis+sentinel://host:26379"),
        ("REDIS_URL", "redis://a,redis://b"),
        ("REDIS_URL", "redis://a,redis://a,redis://b"),
        ("AMQP_URL", "http://host"),
        ("AMQP_PREFIX", "with a space"),
        ("DELAY_QUEUE", "kafka"),
        ("SSL_CERT_FILE", "/nowhere/ca.pem"),
        ("SSL_CERT_FILE", "/dev/null"),
        ("SSL_CERT_FILE", ""),
        ("BIND_ADDR", "localhost"),
        ("PUBLIC_URL", "ftp://x"),
        ("PUBLIC_URL", "https://x/?y"),
        ("PUBLIC_URL", "https://x#y"),
        ("PUBLIC_URL", "https://me:word@x"),
        ("RUST_LOG", "payonce=loud"),
        ("ADMIN_TOKENS", "operator:short"),
        ("ADMIN_TOKENS", "root:a-secret-of-more-than-24-bytes"),
        ("ADMIN_TOKENS", ""),
        ("ADMIN_TOKENS", "operator: a-secret-of-more-than-24-bytes"),
        ("ADMIN_TOKENS", "operator:a-secret of-more-than-24-bytes"),
        ("ADMIN_TOKENS", "operator:ein-schlüssel-von-über-24-bytes"),
        ("ADMIN_TOKENS", "viewer@a:a-secret-of-more-than-24-bytes,operator@b:a-secret-of-more-than-24-bytes"),
        ("ENCRYPTION_KEY", ""),
        ("SANDBOX_SECRET", "short"),
        ("CORS_ORIGINS", "https://a.example/path"),
        ("CORS_ORIGINS", "*"),
        ("ORDER_TIMEOUT_SECONDS", "0"),
        ("ORDER_TIMEOUT_SECONDS", "604801"),
        ("DATABASE_POOL_SIZE", "many"),
        ("RATES_URL", "rates.internal"),
        ("RATES_TOKEN", "of two\nlines"),
        ("RATES_DEADLINE_MS", "0"),
        ("HTTP_CONNECTIONS_MAX", "0"),
        ("HTTP_REQUESTS_MAX", "0"),
        ("LOG_FORMAT", "xml"),
    ];
    for (name, value) in cases {
        let error = read_with(name, value).expect_err(&format!("{name}={value} must stop the start"));
        assert_eq!(error.name, name);
        assert!(!error.expected.is_empty() && error.to_string().contains("expected"), "{error}");
    }
}

#[test]
fn a_delay_queue_on_rabbitmq_needs_its_address() {
    let error = read_with("DELAY_QUEUE", "rabbitmq").expect_err("there is no AMQP_URL");
    assert_eq!(error.name, "AMQP_URL");
}

#[test]
fn a_wrong_secret_is_not_shown() {
    let error = read_with("ADMIN_TOKENS", "operator:hush").unwrap_err();
    assert!(!error.to_string().contains("hush"), "{error}");
}

#[test]
fn a_secret_may_come_from_a_file() {
    let file = std::env::temp_dir().join(format!("payonce-secret-{}", std::process::id()));
    std::fs::write(&file, format!("{LONG}\n")).unwrap();
    let mut env = Env::of(Strictness::Strict, complete());
    env.set("SANDBOX_SECRET", "");
    env.set("SANDBOX_SECRET_FILE", file.to_str().unwrap());
    let config = Config::read(&env).unwrap();
    // By both of them, one may be an old one.
    env.set("SANDBOX_SECRET", LONG);
    let error = Config::read(&env).unwrap_err();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(config.channels.sandbox_secret.expose_secret(), LONG);
    assert_eq!(error.name, "SANDBOX_SECRET");
    assert!(error.to_string().contains("SANDBOX_SECRET_FILE is set, too"), "{error}");
}

#[test]
fn what_is_no_text_is_named_where_it_is_ours_and_passed_over_where_it_is_not() {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    let garbled = || OsString::from_vec(b"caf\xe9-of-more-than-24-bytes".to_vec());
    let read = |more: Vec<(OsString, OsString)>| {
        let all = complete().into_iter().map(|(name, value)| (name.into(), value.into()));
        Config::read(&Env::of_os(Strictness::Strict, all.chain(more)))
    };
    let others =
        vec![("LS_COLORS".into(), garbled()), (garbled(), "x".into()), ("BIND_ADDR_FILE".into(), garbled())];
    assert!(read(others).is_ok());
    let ours = [
        ("ENCRYPTION_KEY", "ENCRYPTION_KEY"),
        ("AMQP_URL_FILE", "AMQP_URL"),
        ("BIND_ADDR", "BIND_ADDR"),
        ("SSL_CERT_FILE", "SSL_CERT_FILE"),
    ];
    for (name, named) in ours {
        let error = read(vec![(name.into(), garbled())]).expect_err(name);
        assert!(error.name == named && error.to_string().contains("UTF-8"), "{error}");
    }
}

#[test]
fn env_example_is_the_list() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/.env.example");
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    if std::env::var_os("PAYONCE_WRITE").is_some() {
        std::fs::write(path, env_example()).unwrap();
    } else {
        assert_eq!(committed, env_example(), "run PAYONCE_WRITE=1 cargo test env_example_is_the_list");
    }
}

/// What docker-compose.yml keeps from the app, and why.
const NOT_IN_COMPOSE: [(&str, &str); 4] = [
    (
        "SSL_CERT_FILE",
        "a shell has one of its own, a path that is not in the container: mount the file and add both",
    ),
    (
        "PAYONCE_URL",
        "for `admin` and `demo` at a terminal; in the container they work on the database itself",
    ),
    ("PAYONCE_ADMIN_TOKEN", "the same"),
    ("PAYONCE_SECRET_KEY", "the same"),
];

#[test]
fn compose_hands_every_variable_to_the_app() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docker-compose.yml");
    let text = std::fs::read_to_string(path).unwrap();
    let app = text.split_once("\n  app:\n").unwrap().1.split_once("\n  postgres:\n").unwrap().0;
    let is_there = |name: &str| app.lines().any(|line| line.trim_start().starts_with(&format!("{name}:")));
    for Variable { name, .. } in VARIABLES {
        let is_kept_out = NOT_IN_COMPOSE.iter().any(|(known, _)| known == name);
        assert!(
            is_there(name) != is_kept_out,
            "{name}: write `{name}:` in docker-compose.yml, or here why not"
        );
    }
    // An empty text is not the same as none: SSL_CERT_FILE and PAYONCE_ROLES refuse it.
    assert!(!app.contains(":-}"), "write `NAME:` without a value, which hands on only what is set");
}
