//! What `REDIS_URL` may say: one server, the sentinels of a master, or a quorum of independent nodes.

use std::fmt;
use std::str::FromStr;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};
use reqwest::Url;

/// Port of a sentinel that names none.
const SENTINEL_PORT: u16 = 26379;

/// Where Redis is. Its `Debug` shows addresses and no passwords.
#[derive(Clone)]
pub enum RedisServers {
    /// One server.
    One(ConnectionInfo),
    /// The present master of that name, as its sentinels tell.
    Sentinel(SentinelGroup),
    /// Nodes that know nothing of each other; the majority grants a lock.
    Quorum(Vec<ConnectionInfo>),
}

/// A master and who watches it.
#[derive(Clone)]
pub struct SentinelGroup {
    /// Where the sentinels are.
    pub sentinels: Vec<(String, u16)>,
    /// The master's name.
    pub master: String,
    /// User, password and database at the master.
    pub login: RedisConnectionInfo,
    /// The sentinels' own password, if they have one.
    pub sentinel_password: Option<String>,
    /// Whether all of it speaks TLS (`rediss+sentinel`).
    pub is_tls: bool,
}

impl FromStr for RedisServers {
    type Err = String;

    /// What is wrong is told without the text itself, which holds passwords.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with("redis+sentinel:") || text.starts_with("rediss+sentinel:") {
            return SentinelGroup::parse(text).map(Self::Sentinel);
        }
        let nodes: Vec<&str> = text.split(',').map(str::trim).collect();
        let [one] = nodes.as_slice() else { return quorum(&nodes) };
        node(one).map(Self::One)
    }
}

/// The address of one server.
fn node(text: &str) -> Result<ConnectionInfo, String> {
    let scheme = text.split(':').next().unwrap_or_default();
    if !["redis", "rediss", "unix", "redis+unix"].contains(&scheme) {
        return Err("the scheme of a server is none of redis, rediss, unix, redis+unix".into());
    }
    text.into_connection_info().map_err(|error| format!("not the URL of a server ({error})"))
}

fn quorum(nodes: &[&str]) -> Result<RedisServers, String> {
    let mut known: Vec<ConnectionInfo> = Vec::new();
    for (index, text) in nodes.iter().enumerate() {
        let position = index + 1;
        if text.contains("+sentinel:") {
            return Err(format!("node {position} of the list names sentinels; its nodes are single servers"));
        }
        let info = node(text).map_err(|problem| format!("node {position} of the list: {problem}"))?;
        // One server that is counted twice would be a majority by itself.
        if known.iter().any(|other| other.addr() == info.addr()) {
            return Err(format!("node {position} of the list stands there twice"));
        }
        known.push(info);
    }
    if known.len() < 3 {
        return Err("a list needs three nodes or more: two survive no failure".into());
    }
    Ok(RedisServers::Quorum(known))
}

impl SentinelGroup {
    /// Reads `redis+sentinel://[user:password@]host[:port],host[:port]/master[/db][?sentinel_password=…]`.
    fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text
            .split_once("://")
            .filter(|(scheme, _)| ["redis+sentinel", "rediss+sentinel"].contains(scheme))
            .ok_or("there is no :// after redis+sentinel")?;
        let (authority, path) = rest.split_once('/').ok_or("the name of the master is missing")?;
        let (user_info, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let sentinels = hosts.split(',').map(|host| sentinel(host.trim())).collect::<Result<Vec<_>, _>>()?;

        // User, password, path and query are those of any URL: one with a single host is read as such.
        let one = Url::parse(&format!("redis://{user_info}@sentinels/{path}"))
            .map_err(|error| format!("not a URL ({error})"))?;
        let mut words = one.path().trim_start_matches('/').splitn(2, '/');
        let master =
            words.next().filter(|name| !name.is_empty()).ok_or("the name of the master is missing")?;
        // As sentinels take them, and as no password of a mistaken form stands there.
        if !master.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
            return Err(
                "the name of the master has other characters than letters, digits, dots, dashes and _".into(),
            );
        }
        let db = match words.next() {
            // Not shown: where forms are mixed up, a password may stand there.
            Some(db) => db.parse().map_err(|_| "the database is not a number")?,
            None => 0,
        };
        Ok(Self {
            sentinels,
            master: master.to_owned(),
            login: login(&one)?.set_db(db),
            sentinel_password: sentinel_password(&one)?,
            is_tls: scheme.starts_with("rediss"),
        })
    }
}

/// `host`, `host:port` or `[v6]:port`.
fn sentinel(text: &str) -> Result<(String, u16), String> {
    let url =
        Url::parse(&format!("redis://{text}")).map_err(|error| format!("a sentinel's host: {error}"))?;
    let host = url.host_str().filter(|_| url.path().is_empty()).ok_or("a sentinel without a host")?;
    Ok((host.trim_matches(['[', ']']).to_owned(), url.port().unwrap_or(SENTINEL_PORT)))
}

/// User and password, as the Redis client itself takes them out of a URL.
fn login(url: &Url) -> Result<RedisConnectionInfo, String> {
    let mut plain = url.clone();
    plain.set_path("");
    plain.set_query(None);
    let info = plain.into_connection_info().map_err(|error| format!("user or password: {error}"))?;
    Ok(info.redis_settings().clone())
}

fn sentinel_password(url: &Url) -> Result<Option<String>, String> {
    let mut password = None;
    for (name, value) in url.query_pairs() {
        match name.as_ref() {
            "sentinel_password" => password = Some(value.into_owned()),
            _ => return Err("a parameter that is not known; there is only sentinel_password".to_owned()),
        }
    }
    Ok(password)
}

/// How people call a server.
pub(super) fn name_of(addr: &ConnectionAddr) -> String {
    addr.to_string()
}

impl fmt::Debug for RedisServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(info) => f.debug_tuple("One").field(&name_of(info.addr())).finish(),
            Self::Sentinel(group) => f.debug_tuple("Sentinel").field(group).finish(),
            Self::Quorum(nodes) => {
                f.debug_list().entries(nodes.iter().map(|info| name_of(info.addr()))).finish()
            }
        }
    }
}

impl fmt::Debug for SentinelGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentinelGroup")
            .field("sentinels", &self.sentinels)
            .field("master", &self.master)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(text: &str) -> SentinelGroup {
        match text.parse() {
            Ok(RedisServers::Sentinel(group)) => group,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn sentinels_are_read_with_all_that_may_be_said() {
        let plain = group("redis+sentinel://a:26379,b:26380/mymaster");
        assert_eq!(plain.sentinels, [("a".to_owned(), 26379), ("b".to_owned(), 26380)]);
        assert_eq!((plain.master.as_str(), plain.login.db(), plain.is_tls), ("mymaster", 0, false));

        let full = group("rediss+sentinel://u:p%40ss@a,[::1]:7/mymaster/3?sentinel_password=s");
        assert_eq!(full.sentinels, [("a".to_owned(), 26379), ("::1".to_owned(), 7)]);
        assert_eq!((full.login.username(), full.login.password()), (Some("u"), Some("p@ss")));
        assert_eq!((full.login.db(), full.is_tls), (3, true));
        assert_eq!(full.sentinel_password.as_deref(), Some("s"));
    }

    #[test]
    fn a_list_is_a_quorum() {
        let three: Result<RedisServers, _> = "redis://a,redis://:p@b:6380/1,rediss://c".parse();
        assert!(matches!(three, Ok(RedisServers::Quorum(nodes)) if nodes.len() == 3));
        assert!(matches!("redis://a".parse(), Ok(RedisServers::One(_))));
    }

    #[test]
    fn wrong_forms_are_refused_without_showing_a_password() {
        let wrong = [
            "nonsense",
            "http://a",
            "redis+sentinel://a:26379",
            "redis+sentinel://a:26379/",
            "redis+sentinel:///mymaster",
            "redis+sentinel://a:b/mymaster",
            "redis+sentinel://a/mymaster/hush",
            "redis+sentinel://a/mymaster?nonsense=1",
            "redis://a,",
            "redis://:hush@a,redis://:hush@b",
            "redis://:hush@a,redis://:hush@a,redis://b",
            "redis://a,redis://b,redis+sentinel://c/mymaster",
        ];
        for text in wrong {
            let problem = text.parse::<RedisServers>().expect_err(text);
            assert!(!problem.contains("hush@"), "{problem}");
        }
    }
}
