//! Clients of the operators' listeners that are silent or slow, and the requests that they must not keep out.

use crate::support::*;

/// More than a listener has places.
const MANY: usize = 300;

/// The head of an order whose body is missing.
fn slow_order() -> String {
    let fields = [("Content-Type", "application/json"), ("Content-Length", "100")];
    head_of("POST", "/purge", &fields)
}

#[tokio::test]
async fn silent_clients_keep_neither_health_checks_nor_orders_out() {
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    settings.metrics = Some("127.0.0.1:0".parse().unwrap());
    let node = start(settings).await;
    let (admin, metrics) = (node.addresses.admin.unwrap(), node.addresses.metrics.unwrap());
    let mut silent = Vec::new();
    for at in [admin, metrics] {
        for number in 0..MANY {
            // Every second one sends the beginning of a head.
            let begun = ["", "GET /healthz HT"][number % 2];
            silent.push(Wire::saying(at, begun).await);
            if number % 10 == 0 {
                assert_eq!(get(at, "/healthz").await.status, 200, "with {number} others at {at}");
                assert_eq!(get(at, "/readyz").await.status, 200, "with {number} others at {at}");
            }
        }
        assert_eq!(get(at, "/metrics").await.status, 200);
    }
    let order = [("Content-Type", "application/json"), ("Content-Length", "0")];
    let order = Wire::saying(admin, head_of("POST", "/drain?undo", &order)).await.answer().await;
    assert_eq!(order.status, 200);
    for mut wire in silent {
        wire.rest().await;
    }
}

#[tokio::test]
async fn client_with_much_work_leaves_places_for_others() {
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    settings.purge.access.token = Some("purge-token-of-the-test".into());
    let node = start(settings).await;
    let at = node.addresses.admin.unwrap();
    let bearer = "Bearer purge-token-of-the-test";
    let slow = slow_order().replacen("\r\n", &format!("\r\nAuthorization: {bearer}\r\n"), 1);
    let mut held = Vec::new();
    for number in 0..100 {
        let mut wire = Wire::over(connect_from(2, at).await);
        wire.send(&slow).await;
        // A health check on the same connection is answered after the order only, a new one at once.
        let mut check = Wire::over(connect_from(2, at).await);
        check.send(head_of("GET", "/healthz", &[])).await;
        assert_eq!(check.answer().await.status, 200, "with {number} orders");
        held.push(wire);
    }
    let mut greedy = Wire::over(connect_from(2, at).await);
    greedy.send(head_of("GET", "/metrics", &[])).await;
    let refused = greedy.answer().await;
    assert_eq!((refused.status, refused.field("retry-after")), (503, "1".into()));
    let mut other = Wire::over(connect_from(3, at).await);
    other.send(head_of("GET", "/metrics", &[])).await;
    assert_eq!(other.answer().await.status, 200);
    let mut operator = Wire::over(connect_from(3, at).await);
    operator.send(head_of("GET", "/status", &[("Authorization", bearer)])).await;
    assert_eq!(operator.answer().await.status, 200);
    drop(held);
}
