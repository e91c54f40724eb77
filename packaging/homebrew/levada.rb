# The formula builds from the source of a release. The release's workflow sets url and sha256.
class Levada < Formula
  desc "Content delivery network that one can run"
  homepage "https://levada.example"
  url "https://levada.example/levada.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license any_of: ["Apache-2.0", "MIT"]

  depends_on "rust" => :build

  def install
    system "cargo", "install", *std_cargo_args(path: "crates/levada")
    generate_completions_from_executable(bin/"levada", "completions")
    system bin/"levada", "man", man1
    inreplace "packaging/levada.toml" do |s|
      s.gsub! "/usr/share/levada/www", "#{pkgshare}/www"
      s.gsub! "unix:/run/levada/admin.sock", "127.0.0.1:9180"
      s.gsub! "mode = \"0660\"\n", ""
      s.gsub! "/var/log/levada", "#{var}/log/levada"
      s.gsub! "/var/cache/levada", "#{var}/cache/levada"
    end
    (etc/"levada").install "packaging/levada.toml"
    pkgshare.install "packaging/www", "examples"
  end

  def post_install
    (var/"log/levada").mkpath
    (var/"cache/levada").mkpath
  end

  service do
    run [opt_bin/"levada", "run", "--config", etc/"levada/levada.toml"]
    keep_alive true
    error_log_path var/"log/levada/events.log"
  end

  test do
    (testpath/"www/index.html").write "from the test"
    port = free_port
    (testpath/"levada.toml").write <<~TOML
      name = "test"
      [[listen]]
      address = "127.0.0.1:#{port}"
      [[site]]
      hosts = "*"
      files = "www"
    TOML
    system bin/"levada", "validate", "--config", "levada.toml"
    node = spawn bin/"levada", "run", "--config", "levada.toml"
    output = shell_output("curl --retry 5 --retry-connrefused --silent http://127.0.0.1:#{port}/")
    assert_equal "from the test", output
  ensure
    Process.kill "TERM", node if node
  end
end
