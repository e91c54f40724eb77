//! The site of the prototype: files, and programs that cost far more (WWW10 Sec. 5.2).

use std::time::Duration;

use levada_cap::Pareto;
use levada_types::{Key, Request, Rng, ServiceClass};

use super::HOST;
use crate::machine::Work;

/// Files by popularity, and services.
#[derive(Clone, Debug)]
pub struct Site {
    /// Sizes, the most popular file first.
    files: Vec<u64>,
    /// The part of the requests for files that go to this file or a more popular one.
    popularity: Vec<f64>,
    services: Vec<Service>,
}

/// A program behind one URL.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Service {
    /// Its name in the URL.
    pub name: &'static str,
    /// Its share of all requests.
    pub share: f64,
    /// Its class, as CAP's operator would configure it.
    pub class: ServiceClass,
    /// Its CPU time.
    pub cpu: Duration,
    /// Its disk time.
    pub disk: Duration,
    /// The size of its answer.
    pub bytes: u64,
}

/// The object of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A file.
    File(u32),
    /// A service.
    Service(u32),
}

/// Stresses the CPU "in a lightly way". The paper does not give the cost of the services.
const LIGHT: Service = Service {
    name: "light",
    share: 0.1,
    class: ServiceClass::Normal,
    cpu: Duration::from_millis(10),
    disk: Duration::ZERO,
    bytes: 4_000,
};

/// Stresses the CPU "in an intensive way".
const INTENSIVE: Service = Service {
    name: "intensive",
    share: 0.06,
    class: ServiceClass::CpuBound,
    cpu: Duration::from_millis(100),
    ..LIGHT
};

/// Stresses CPU and disk: half the CPU time, and five times the disk's seek time.
const BOTH: Service = Service {
    name: "both",
    share: 0.04,
    class: ServiceClass::DiskAndCpuBound,
    cpu: Duration::from_millis(50),
    disk: Duration::from_millis(140),
    ..LIGHT
};

/// The sizes of files: the Pareto distribution of Table 1, whose symbols are lost, with the values of
/// the same group's papers.
const SIZES: Pareto = Pareto { alpha: 1.383, k: 2_924.0 };

/// The largest size of a file. Not in the paper.
const LARGEST: f64 = 1e6;

impl Site {
    /// Files only: the static workload.
    pub fn files(files: usize, seed: u64) -> Self {
        Self::new(files, Vec::new(), seed)
    }

    /// Four files to one light service: the light dynamic workload.
    pub fn light(files: usize, seed: u64) -> Self {
        Self::new(files, vec![Service { share: 0.2, ..LIGHT }], seed)
    }

    /// 80 % files, 10 % light, 6 % CPU-intensive, 4 % CPU and disk: the intensive dynamic workload.
    pub fn intensive(files: usize, seed: u64) -> Self {
        Self::new(files, vec![LIGHT, INTENSIVE, BOTH], seed)
    }

    /// Size and popularity of a file are independent. Popularity falls with the rank (Zipf), as in
    /// the simulation of Sec. 4.
    fn new(files: usize, services: Vec<Service>, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let count = files.max(1);
        let size = |_| SIZES.draw(&mut rng).min(LARGEST).round() as u64;
        let files = (0..count).map(size).collect();
        let mut sum = 0.0;
        let ranks = (1..=count).map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        });
        let mut popularity: Vec<f64> = ranks.collect();
        popularity.iter_mut().for_each(|share| *share /= sum);
        Self { files, popularity, services }
    }

    /// Its services.
    pub fn services(&self) -> &[Service] {
        &self.services
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().sum()
    }

    /// Number of files.
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// The path of its URL. It contains the size, so that a server needs no list of files.
    pub fn target(&self, ask: Ask) -> String {
        match ask {
            Ask::File(file) => format!("/file/{file}/{}", self.files[file as usize]),
            Ask::Service(service) => {
                let Service { name, bytes, .. } = self.services[service as usize];
                format!("/service/{name}/{bytes}")
            }
        }
    }

    /// The size of the answer.
    pub fn size(&self, ask: Ask) -> u64 {
        match ask {
            Ask::File(file) => self.files[file as usize],
            Ask::Service(service) => self.services[service as usize].bytes,
        }
    }

    /// The request as a policy sees it, and its work at a server.
    pub(super) fn request(&self, ask: Ask) -> (Request, Work) {
        let key = Key::of(format!("http://{HOST}{}", self.target(ask)).as_bytes());
        let request = Request { size: Some(self.size(ask)), ..Request::new(key) };
        match ask {
            Ask::File(file) => {
                let bytes = self.files[file as usize];
                (request, Work::File { key, bytes })
            }
            Ask::Service(service) => {
                let Service { class, cpu, disk, bytes, .. } = self.services[service as usize];
                (Request { class, ..request }, Work::Service { cpu, disk, bytes })
            }
        }
    }

    /// Draws an object to request.
    pub(super) fn draw(&self, rng: &mut Rng) -> Ask {
        let mut place = rng.unit();
        for (number, service) in (0..).zip(&self.services) {
            if place < service.share {
                return Ask::Service(number);
            }
            place -= service.share;
        }
        let place = rng.unit();
        let file = self.popularity.partition_point(|share| *share <= place);
        Ask::File(file.min(self.files.len() - 1) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_the_paper() {
        let site = Site::intensive(100, 1);
        let mut rng = Rng::new(2);
        let mut drawn = [0; 4];
        for _ in 0..100_000 {
            match site.draw(&mut rng) {
                Ask::File(_) => drawn[3] += 1,
                Ask::Service(service) => drawn[service as usize] += 1,
            }
        }
        for (got, expected) in drawn.into_iter().zip([10_000_i32, 6_000, 4_000, 80_000]) {
            assert!((got - expected).abs() < 500, "{drawn:?}");
        }
    }

    #[test]
    fn target_names_what_a_server_must_know() {
        let site = Site::intensive(3, 1);
        assert_eq!(site.target(Ask::Service(1)), "/service/intensive/4000");
        let (request, work) = site.request(Ask::File(2));
        assert_eq!(site.target(Ask::File(2)), format!("/file/2/{}", work.bytes()));
        assert_eq!(request.class, ServiceClass::Normal);
    }
}
