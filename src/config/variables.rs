//! Every variable there is, with its default and its meaning.

/// One variable of the environment.
#[derive(Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What stands for it when it is not set; empty where there is none.
    pub default: &'static str,
    /// What it is for, in a sentence.
    pub meaning: &'static str,
    /// What a right value looks like.
    pub expected: &'static str,
    /// Whether `NAME_FILE` may name a file that holds it, and its value is never shown.
    pub is_secret: bool,
}

const fn plain(
    name: &'static str,
    default: &'static str,
    expected: &'static str,
    meaning: &'static str,
) -> Variable {
    Variable { name, default, meaning, expected, is_secret: false }
}

const fn secret(name: &'static str, expected: &'static str, meaning: &'static str) -> Variable {
    Variable { name, default: "", meaning, expected, is_secret: true }
}

/// The whole list, in the order of `.env.example`.
pub const VARIABLES: &[Variable] = &[
    secret(
        "DATABASE_URL",
        "postgres://user:password@host:5432/payonce",
        "PostgreSQL 15 or later: the truth.",
    ),
    plain(
        "DATABASE_POOL_SIZE",
        "24",
        "a whole number from 8 to 500",
        "Connections to PostgreSQL at most; 16 to 32 are best on two cores.",
    ),
    plain(
        "DATABASE_BATCH_MAX",
        "128",
        "a whole number from 1 to 1000",
        "Concurrent commands of one kind that share a statement and its commit at most; 1 carries out one after the other.",
    ),
    plain(
        "DATABASE_ACQUIRE_MS",
        "3000",
        "milliseconds from 50 to 60000",
        "How long a request waits for a connection before it is answered 503.",
    ),
    plain(
        "DATABASE_STATEMENT_MS",
        "5000",
        "milliseconds from 100 to 60000",
        "How long one statement may run; one second later its connection is closed.",
    ),
    secret(
        "REDIS_URL",
        "redis://host:6379/0, or redis+sentinel://host:26379,host:26379/master-name/0, or three or more redis://… of \
         independent nodes, comma separated; rediss for TLS",
        "Redis 6.2 or later: locks and timers; losing it only slows things.",
    ),
    plain(
        "REDIS_ANSWER_MS",
        "50",
        "milliseconds from 5 to 5000",
        "How long Redis may take to answer before the work goes on without it.",
    ),
    plain(
        "LOCK_TTL_MS",
        "10000",
        "milliseconds from 300 to 600000",
        "Life of a lock whose holder died; a living holder renews it every third of this.",
    ),
    secret(
        "AMQP_URL",
        "amqp://user:password@host:5672/vhost, or amqps://…",
        "RabbitMQ 3.8 or later: gets every event, brings reports of usage, and keeps the timers with DELAY_QUEUE=rabbitmq; what it misses while it is away comes later.",
    ),
    plain(
        "AMQP_PREFIX",
        "payonce",
        "at most 64 of 0-9A-Za-z_.-",
        "What the names of the queues and exchanges begin with, where services share a vhost of RabbitMQ.",
    ),
    plain(
        "SSL_CERT_FILE",
        "",
        "a file of certificates in PEM",
        "Authorities that rediss, amqps and https are trusted by, in place of the machine's own; PostgreSQL has sslrootcert in its URL.",
    ),
    plain(
        "BIND_ADDR",
        "127.0.0.1:8080",
        "an address and a port, such as 0.0.0.0:8080",
        "Where the HTTP server listens.",
    ),
    plain(
        "PUBLIC_URL",
        "",
        "http(s)://host, without a path",
        "How browsers and channels reach this service; by default http:// and BIND_ADDR.",
    ),
    plain(
        "HTTP_CONNECTIONS_MAX",
        "10000",
        "a whole number from 16 to 1000000",
        "Connections from outside at once at most, and at most half of the file descriptors; more wait until one ends.",
    ),
    plain(
        "HTTP_REQUESTS_MAX",
        "1024",
        "a whole number from 1 to 1000000",
        "Requests of merchants under way at once at most, and as many callbacks; more are answered 503 OVERLOADED at once. Under a load that lasts, half of them are let in. Who waits for a channel does not count.",
    ),
    secret(
        "ADMIN_TOKENS",
        "role:token or role@name:token, comma separated; roles viewer and operator; different tokens of at least 24 visible ASCII characters, no spaces",
        "Who may use the admin routes.",
    ),
    plain(
        "CORS_ORIGINS",
        "",
        "origins such as https://shop.example, comma separated",
        "Whose pages may call POST /pay/url and GET /pay/{id} from a browser, and name themselves as its return_url.",
    ),
    secret(
        "ENCRYPTION_KEY",
        "a random text of at least 24 bytes",
        "Encrypts the secrets that must be read again, such as those that sign notifications.",
    ),
    secret(
        "SANDBOX_SECRET",
        "a random text of at least 24 bytes",
        "Signs what passes between this service and the sandbox channel.",
    ),
    plain(
        "SANDBOX_URL",
        "",
        "http(s)://host of an instance that runs the role sandbox",
        "Uses the sandbox of another instance; without it the channel exists only where the role runs.",
    ),
    plain(
        "CHANNEL_DEADLINE_MS",
        "5000",
        "milliseconds from 50 to 10000",
        "How long one call to a channel may take before it counts as silent.",
    ),
    plain(
        "ORDER_TIMEOUT_SECONDS",
        "1800",
        "seconds from 1 to 604800",
        "Life of an order that does not say how long it lives.",
    ),
    plain(
        "DELAY_QUEUE",
        "redis",
        "redis or rabbitmq",
        "What makes timeouts prompt; the database is swept for what either missed.",
    ),
    plain(
        "ORDER_POLL_MS",
        "100",
        "milliseconds from 10 to 60000",
        "How often the delay queue is asked for orders that are due.",
    ),
    plain(
        "ORDER_SWEEP_MS",
        "5000",
        "milliseconds from 100 to 600000",
        "How often the database is swept for due orders that the delay queue missed.",
    ),
    plain(
        "RATES_URL",
        "",
        "http(s)://host/path of an endpoint of yours, as src/settlement/rates/http.rs describes it",
        "Is asked for the rates of commissions; without it they are those of the admin API's rules and levels.",
    ),
    secret(
        "RATES_TOKEN",
        "a token",
        "What that endpoint is called with, as Authorization: Bearer; may be left empty.",
    ),
    plain(
        "RATES_DEADLINE_MS",
        "5000",
        "milliseconds from 50 to 20000",
        "How long that endpoint may take before a settlement is answered 503.",
    ),
    plain(
        "NOTIFY_ALLOW_NETS",
        "",
        "networks such as 10.1.0.0/16, comma separated",
        "Networks that notifications may reach although they are not public, also without TLS; on a developer's machine, itself.",
    ),
    plain(
        "RECON_AT",
        "03:00",
        "a time of day as HH:MM, or off",
        "When the day before is compared with the statements of all channels; off leaves it to operators.",
    ),
    plain(
        "RECON_TZ",
        "UTC",
        "a time zone as PostgreSQL knows it, such as UTC or Asia/Shanghai",
        "Whose time of day RECON_AT is.",
    ),
    plain(
        "RECON_AUTO",
        "safe",
        "off, safe or all",
        "What is done about differences without a person: nothing; money is applied to open orders; or also what gives money \
         back, within the day's cap.",
    ),
    plain(
        "RECON_DAILY_CAP",
        "",
        "minor units by currency, such as CNY:500000,USD:80000",
        "With RECON_AUTO=all, how much may go back, or be charged to users, in a day of UTC without a person; a currency that is not named: nothing.",
    ),
    plain(
        "TASK_LEASE_MS",
        "25000",
        "milliseconds from 1000 to 25000",
        "How long a task stays with a worker that died; a living one renews it every third of this, however slow it is. A try of a notification has three fifths of it, 15 s at most.",
    ),
    plain(
        "PAYONCE_ROLES",
        "api,workers",
        "api, workers, sandbox, comma separated",
        "Which parts of the service `serve` runs; --roles overrides it.",
    ),
    plain(
        "PAYONCE_URL",
        "",
        "http(s)://host of a running instance",
        "Where `admin` and `demo` find one; without it `admin` works on the database itself.",
    ),
    secret(
        "PAYONCE_ADMIN_TOKEN",
        "one of the tokens of ADMIN_TOKENS there",
        "With what `admin` and `demo` call it.",
    ),
    secret("PAYONCE_SECRET_KEY", "sk_… of a merchant there", "Whose orders `demo` plays."),
    plain("LOG_FORMAT", "text", "text or json", "How log lines look."),
    plain(
        "RUST_LOG",
        "info,sqlx=warn,lapin=off",
        "directives of tracing-subscriber's EnvFilter",
        "Which log lines there are.",
    ),
];

/// The entry of a name that is in the list; asking for another is a defect that any test run shows.
pub(super) fn find(name: &'static str) -> &'static Variable {
    const UNLISTED: Variable = plain("", "", "a variable of the list", "Not in the list.");
    VARIABLES.iter().find(|variable| variable.name == name).unwrap_or(&UNLISTED)
}

/// The text of `.env.example`.
#[must_use]
pub fn env_example() -> String {
    let mut text = String::from(
        "# Every variable that Payonce reads, with its default. A variable that is commented out may stay so.\n\
         # Secrets may also be given as a file: DATABASE_URL_FILE=/run/secrets/database_url and the like.\n",
    );
    for variable in VARIABLES {
        let Variable { name, default, meaning, expected, is_secret } = variable;
        let assignment = if *is_secret { format!("{name}=") } else { format!("#{name}={default}") };
        text.push_str(&format!("\n# {meaning}\n# Expected: {expected}.\n{assignment}\n"));
    }
    text
}
