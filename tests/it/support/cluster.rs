//! Several equal instances over one database and one Redis.

use super::app::{TestApp, TestOptions};

/// Equal instances; the first owns the stores.
pub struct Cluster {
    pub instances: Vec<TestApp>,
}

impl Cluster {
    /// So many instances, all with the same options, over fresh stores.
    pub async fn start(count: usize, options: TestOptions) -> Self {
        let first = TestApp::start_with(options.clone()).await;
        let mut instances = vec![first];
        while instances.len() < count {
            let options = TestOptions {
                database_url: Some(instances[0].database_url.clone()),
                redis_url: Some(instances[0].redis_url.clone()),
                ..options.clone()
            };
            instances.push(TestApp::start_with(options).await);
        }
        Self { instances }
    }

    /// Any one of them, in turn.
    pub fn turn(&self, index: usize) -> &TestApp {
        &self.instances[index % self.instances.len()]
    }

    /// The first of them.
    pub fn first(&self) -> &TestApp {
        &self.instances[0]
    }

    /// The story's end: the invariants, then nothing is left behind.
    pub async fn end(mut self) {
        let first = self.instances.swap_remove(0);
        for other in self.instances {
            other.end().await;
        }
        first.end().await;
    }
}
