//! Followers: a destination that pulls again when the manifest changes.

use std::{fs, sync::Arc, time::Duration};

use levada_client::{Client, ClientSettings, FollowSettings, Round};
use tokio::{
    sync::{Notify, mpsc},
    task::LocalSet,
};

use crate::world::{World, facts};

/// A follower, its rounds, and a way to stop it.
struct Follower {
    rounds: mpsc::UnboundedReceiver<(bool, bool)>,
    stop: Arc<Notify>,
    task: tokio::task::JoinHandle<bool>,
}

impl Follower {
    fn start(world: &World) -> Self {
        let mut request = world.request();
        request.delay = true;
        let (told, rounds) = mpsc::unbounded_channel();
        let stop = Arc::new(Notify::new());
        let stopping = stop.clone();
        let task = tokio::task::spawn_local(async move {
            let client = Client::new(ClientSettings::default()).unwrap();
            let settings = FollowSettings { interval: Duration::from_millis(50) };
            let tell = |round: &Round| {
                let round = round.as_ref();
                let complete = round.is_ok_and(|report| report.complete);
                let _ = told.send((complete, round.is_ok_and(|report| report.not_modified)));
            };
            client.follow(&request, settings, &stopping, tell).await
        });
        Self { rounds, stop, task }
    }

    /// The next round that is not one without a change.
    async fn change(&mut self) -> bool {
        loop {
            let (complete, not_modified) = self.rounds.recv().await.unwrap();
            if !not_modified {
                return complete;
            }
        }
    }
}

#[tokio::test]
async fn follower_pulls_what_is_published_and_asks_for_nothing_else() {
    let test = async {
        let world = World::new();
        world.publish();
        let mut follower = Follower::start(&world);
        assert!(follower.change().await);
        world.assert_equal();
        // At rest, each round is one answer without a body.
        while follower.rounds.recv().await != Some((true, true)) {}
        world.asked();
        for _ in 0..3 {
            assert_eq!(follower.rounds.recv().await, Some((true, true)));
        }
        let asked = world.asked();
        assert!(
            asked.len() >= 3 && asked.iter().all(|asked| asked == "tree.manifest 304"),
            "{asked:?}"
        );
        fs::write(world.tree().join("new"), "new").unwrap();
        world.publish();
        assert!(follower.change().await);
        world.assert_equal();
        follower.stop.notify_one();
        assert!(follower.task.await.unwrap(), "it ended equal to the manifest");
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn broken_publication_leaves_the_old_tree_and_is_not_called_complete() {
    let test = async {
        let world = World::new();
        fs::write(world.tree().join("z"), "old z").unwrap();
        world.publish();
        let mut follower = Follower::start(&world);
        assert!(follower.change().await);
        let old = facts(&world.there());
        // The publisher changes a file after its manifest, and is gone.
        fs::write(world.tree().join("a"), "new a").unwrap();
        fs::write(world.tree().join("z"), "new z").unwrap();
        world.publish();
        fs::write(world.tree().join("z"), "later").unwrap();
        for _ in 0..3 {
            assert!(!follower.change().await);
            assert_eq!(facts(&world.there()), old);
        }
        // A manifest that is cut is no different.
        let manifest = world.directory.path().join("www/tree.manifest");
        let text = fs::read_to_string(&manifest).unwrap();
        fs::write(&manifest, &text[..text.len() / 2]).unwrap();
        assert!(!follower.change().await);
        assert_eq!(facts(&world.there()), old);
        world.publish();
        while !follower.change().await {}
        world.assert_equal();
        follower.stop.notify_one();
        assert!(follower.task.await.unwrap());
    };
    LocalSet::new().run_until(test).await;
}
