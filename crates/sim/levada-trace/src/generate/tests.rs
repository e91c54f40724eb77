//! Compares generated traces with the figures of their models.

use super::*;

/// Relative error.
fn off(value: f64, target: f64) -> f64 {
    (value / target - 1.0).abs()
}

/// Shares of the top 1, 10, 100, 1000, 10000 files that the fitted laws give.
const TOP: [(&Model, [f64; 5]); 2] =
    [(&RICE, [0.055, 0.249, 0.518, 0.747, 0.928]), (&IBM, [0.043, 0.234, 0.580, 0.856, 0.979])];

#[test]
fn full_models_have_the_published_figures() {
    for (model, top) in TOP {
        for seed in 1..=2 {
            let summary = model.population(seed).summary();
            assert_eq!(summary.objects as usize, model.files);
            assert_eq!(summary.requests, model.requests);
            assert!(off(summary.bytes as f64, model.bytes as f64) < 1e-3);
            for coverage in model.coverage {
                let error = off(summary.coverage(coverage.share) as f64, coverage.bytes as f64);
                assert!(error < 1e-3, "{} seed {seed}: {coverage:?} off by {error}", model.name);
            }
            for (power, share) in top.into_iter().enumerate() {
                let had = summary.top_share(10usize.pow(power as u32));
                assert!((had - share).abs() < 0.001, "{} top 10^{power}: {had}", model.name);
            }
            let transfer = summary.mean_transfer;
            assert!(off(transfer, model.mean_transfer) < 0.03, "{} {transfer}", model.name);
        }
    }
}

#[test]
fn laws_fit_before_they_are_calibrated() {
    for model in MODELS {
        let factors = model.population(1).band_factors;
        assert!(factors.iter().all(|factor| (0.7..1.4).contains(factor)), "{factors:?}");
    }
}

#[test]
fn a_scaled_model_keeps_its_shape() {
    for (model, top) in TOP {
        let small = model.scaled(model.files / 10, model.requests / 10);
        let summary = small.population(1).summary();
        assert_eq!((summary.objects as usize, summary.requests), (small.files, small.requests));
        for coverage in small.coverage {
            let error = off(summary.coverage(coverage.share) as f64, coverage.bytes as f64);
            assert!(error < 0.03, "{} {coverage:?} off by {error}", model.name);
        }
        assert!(off(summary.top_share(1), top[0]) < 0.03, "{}", summary.top_share(1));
        let transfer = summary.mean_transfer;
        assert!(off(transfer, model.mean_transfer) < 0.03, "{} {transfer}", model.name);
    }
}

#[test]
fn same_seed_same_trace() {
    let model = RICE.scaled(2_000, 50_000);
    assert_eq!(model.generate(7), model.generate(7));
    assert_ne!(model.generate(7), model.generate(8));
}

#[test]
fn a_trace_has_the_population_s_figures() {
    let model = RICE.scaled(2_000, 50_000);
    let trace = model.generate(1);
    assert_eq!(crate::TraceSummary::of(&trace), model.population(1).summary());
    assert_eq!(&*trace.objects()[1_999].name, "/1999");
}

#[test]
fn tiny_models_are_raised_not_refused() {
    for model in MODELS {
        let trace = model.scaled(0, 0).generate(1);
        assert_eq!((trace.objects().len(), trace.requests().len()), (8, 8));
        assert!(trace.objects().iter().all(|object| object.size >= 64));
    }
}

#[test]
fn endless_requests_follow_the_popularity() {
    let population = RICE.scaled(2_000, 50_000).population(1);
    let first = population.workload(1).take(100_000).filter(|id| *id == 0).count();
    assert!(off(first as f64 / 100_000.0, population.summary().top_share(1)) < 0.05);
}
