#include "cli/tune_page.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "base/byte_text.h"
#include "cli/number_text.h"
#include "options/budget_text.h"

namespace lkv::cli {
namespace {

constexpr std::string_view kHead = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>lkv tune</title>
<style>
:root { color-scheme: light dark; --ink: #1c2430; --quiet: #5a6675;
  --line: #d9dee5; --back: #fbfbfa; --plain: #66748a; --other: #0a66c2;
  --goal: #a8480f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee;
  --quiet: #a0abb8; --line: #343c47; --back: #14181d; --plain: #9aa8bb;
  --other: #6db3ff; --goal: #f0995f; } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem;
  background: var(--back); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 .5rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { max-width: 44rem; margin: .4rem 0; }
.result { font-weight: 600; }
.quiet, figcaption { color: var(--quiet); font-size: .9rem; }
.charts { display: flex; flex-wrap: wrap; gap: 1rem; }
figure { margin: 1rem 0 0; flex: 1 1 25rem; }
svg { width: 100%; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: var(--quiet); }
.grid { stroke: var(--line); }
.plain { stroke: var(--plain); fill: var(--plain); }
.other { stroke: var(--other); fill: var(--other); }
.path { fill: none; stroke-width: 1.5; }
.bar { stroke-width: 1; opacity: .6; }
.best { fill: none; stroke: var(--ink); stroke-width: 1.5; }
.goal { stroke: var(--goal); stroke-dasharray: 5 4; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
tr.is-best { font-weight: 600; }
tr.is-dominated { color: var(--quiet); }
pre { padding: .8rem 1rem; border: 1px solid var(--line);
  border-radius: 4px; overflow-x: auto; font-size: .9rem; }
</style>
</head>
<body>
)";

std::string Escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// <name attributes>, an element without contents.
std::string Element(const std::string& name, const std::string& attributes) {
  return "<" + name + " " + attributes + "/>\n";
}

std::string Number(double value) { return FormatFixed(value, 1); }

std::string Attribute(const std::string& name, double value) {
  return name + "=\"" + Number(value) + "\" ";
}

// Of an axis, whose numbers have one unit.
double MiB(double bytes) { return bytes / (1 << 20); }

std::string Label(double x, double y, const char* anchor,
                  const std::string& text) {
  return "<text " + Attribute("x", x) + Attribute("y", y) + "text-anchor=\"" +
         anchor + "\">" + Escaped(text) + "</text>\n";
}

std::string Line(const char* style, double x0, double y0, double x1,
                 double y1) {
  return Element("line", "class=\"" + std::string(style) + "\" " +
                             Attribute("x1", x0) + Attribute("y1", y0) +
                             Attribute("x2", x1) + Attribute("y2", y1));
}

// What a chart shows of a point, and how its axis is written.
struct Quantity {
  std::string id;  // of the chart's elements
  std::string title;
  bool is_logarithmic = false;
  double (*value)(const TunePoint&);
  const std::optional<Interval>& (*ci95)(const TunePoint&);
  std::string (*format)(double);
};

// Steps of 1, 2 or 5 times a power of ten, some five of them up to `span`.
double NiceStep(double span) {
  const double raw = span / 5;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) return factor * power;
  }
  return 10 * power;
}

// Maps memory and a quantity to the drawing, and draws what lies behind the
// points. KL below a hundredth of a thousandth is drawn there.
class Plane {
 public:
  static constexpr double kWidth = 480, kHeight = 320;
  static constexpr double kLeft = 58, kRight = 468, kTop = 14, kBottom = 272;
  static constexpr double kLeastKl = 1e-5;

  Plane(const std::vector<TunePoint>& points, const Quantity& quantity,
        const TuningGoal& goal)
      : quantity_(quantity) {
    std::vector<double> values;
    for (const TunePoint& point : points) {
      memory_max_ = std::max(memory_max_, MiB(point.means.resident_bytes));
      values.push_back(Scaled(quantity.value(point)));
      if (const auto& ci95 = quantity.ci95(point)) {
        values.push_back(Scaled(ci95->low));
        values.push_back(Scaled(ci95->high));
      }
    }
    if (goal.kind == TuningGoal::Kind::kMemory) {
      memory_max_ = std::max(memory_max_,
                             MiB(goal.value * points.front().means.full_bytes));
    }
    if (!quantity.is_logarithmic) {
      values.push_back(1);
      if (goal.kind == TuningGoal::Kind::kAgreement) {
        values.push_back(goal.value);
      }
    }
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    step_ = quantity.is_logarithmic ? 1 : NiceStep(std::max(*high - *low, .01));
    low_ = step_ * std::floor(*low / step_);
    high_ = std::max(step_ * std::ceil(*high / step_), low_ + step_);
    memory_step_ = NiceStep(memory_max_);
    memory_max_ = memory_step_ * std::ceil(1.02 * memory_max_ / memory_step_);
  }

  double X(double bytes) const {
    return kLeft + (kRight - kLeft) * MiB(bytes) / memory_max_;
  }
  double Y(double value) const {
    return kBottom - (kBottom - kTop) * (Scaled(value) - low_) / (high_ - low_);
  }

  std::string Grid() const {
    std::string out;
    for (int i = 0; low_ + i * step_ <= high_ + step_ / 2; ++i) {
      const double at = low_ + i * step_;
      const double value = quantity_.is_logarithmic ? std::pow(10, at) : at;
      const double y = Y(value);
      out += Line("grid", kLeft, y, kRight, y);
      out += Label(kLeft - 6, y + 4, "end", quantity_.format(value));
    }
    for (int i = 0; i * memory_step_ <= memory_max_ + memory_step_ / 2; ++i) {
      const double x = X(i * memory_step_ * (1 << 20));
      out += Line("grid", x, kBottom, x, kBottom + 4);
      out +=
          Label(x, kBottom + 18, "middle", FormatSignificant(i * memory_step_));
    }
    return out + Label((kLeft + kRight) / 2, kBottom + 38, "middle",
                       "keys and values held, MiB");
  }

 private:
  double Scaled(double value) const {
    return quantity_.is_logarithmic ? std::log10(std::max(value, kLeastKl))
                                    : value;
  }

  const Quantity& quantity_;
  double memory_max_ = 0, memory_step_ = 0;  // MiB
  double low_ = 0, high_ = 1, step_ = 1;     // of the scaled quantity
};

std::string DescribePoint(const TunePoint& point) {
  const TuningMeans& means = point.means;
  return point.settings + ", budget " +
         FormatBudget(
             {.kind = Budget::Kind::kShare, .share = point.candidate.share}) +
         ": " + MemoryText(means) + ", top-1 " +
         FormatPercent(means.agreement) + ", KL " + FormatSignificant(means.kl);
}

// Its interval, a disc (of the defaults) or a diamond, and a ring if it is the
// best.
std::string Mark(const TunePoint& point, const Quantity& quantity,
                 const Plane& plane) {
  const double x = plane.X(point.means.resident_bytes);
  const double y = plane.Y(quantity.value(point));
  // Beside each other, where two settings hold the same.
  const double bar_x = point.is_default ? x - 1.5 : x + 1.5;
  std::string out = "<g class=\"" +
                    std::string(point.is_default ? "plain" : "other") +
                    "\"><title>" + Escaped(DescribePoint(point)) + "</title>\n";
  if (const auto& ci95 = quantity.ci95(point)) {
    out += Line("bar", bar_x, plane.Y(ci95->low), bar_x, plane.Y(ci95->high));
  }
  if (point.is_default) {
    out += Element("circle", Attribute("cx", x) + Attribute("cy", y) +
                                 "r=\"4.5\" stroke=\"none\"");
  } else {
    out += Element("path", "stroke=\"none\" d=\"M" + Number(x) + " " +
                               Number(y - 6) + "l6 6l-6 6l-6 -6z\"");
  }
  if (point.is_best) {
    out += Element("circle", "class=\"best\" " + Attribute("cx", x) +
                                 Attribute("cy", y) + "r=\"9\"");
  }
  return out + "</g>\n";
}

std::string Path(const std::vector<TunePoint>& points, bool of_default,
                 const Quantity& quantity, const Plane& plane) {
  std::string corners;
  for (const TunePoint& point : points) {
    if (point.is_default != of_default) continue;
    corners += Number(plane.X(point.means.resident_bytes)) + "," +
               Number(plane.Y(quantity.value(point))) + " ";
  }
  if (corners.empty()) return {};
  return Element("polyline", "class=\"path " +
                                 std::string(of_default ? "plain" : "other") +
                                 "\" points=\"" + corners + "\"");
}

std::string GoalLine(const TuneReport& report, const Quantity& quantity,
                     const Plane& plane, double full_bytes) {
  const TuningGoal& goal = report.problem.goal;
  if (goal.kind == TuningGoal::Kind::kMemory) {
    const double x = plane.X(goal.value * full_bytes);
    return Line("goal", x, Plane::kTop, x, Plane::kBottom);
  }
  if (quantity.is_logarithmic) return {};
  const double y = plane.Y(goal.value);
  return Line("goal", Plane::kLeft, y, Plane::kRight, y);
}

std::string Chart(const TuneReport& report,
                  const std::vector<TunePoint>& points,
                  const Quantity& quantity) {
  const Plane plane(points, quantity, report.problem.goal);
  std::string description;
  for (const TunePoint& point : points) {
    description += DescribePoint(point) + ". ";
  }
  const std::string title_id = quantity.id + "-title";
  const std::string text_id = quantity.id + "-text";
  std::string out = "<figure>\n<svg role=\"img\" viewBox=\"0 0 " +
                    FormatFixed(Plane::kWidth, 0) + " " +
                    FormatFixed(Plane::kHeight, 0) +
                    "\" xmlns=\"http://www.w3.org/2000/svg\" " +
                    "aria-labelledby=\"" + title_id + " " + text_id + "\">\n";
  out += "<title id=\"" + title_id + "\">" + Escaped(quantity.title) +
         "</title>\n<desc id=\"" + text_id + "\">" + Escaped(description) +
         "</desc>\n";
  out += plane.Grid();
  out += GoalLine(report, quantity, plane, points.front().means.full_bytes);
  for (bool of_default : {true, false}) {
    out += Path(points, of_default, quantity, plane);
  }
  for (const TunePoint& point : points) out += Mark(point, quantity, plane);
  return out + "</svg>\n<figcaption>" + Escaped(quantity.title) +
         "</figcaption>\n</figure>\n";
}

// "95.8 % (93.8 to 97.9)".
std::string WithRange(const std::string& value,
                      const std::optional<Interval>& interval,
                      std::string (*format)(double)) {
  if (!interval) return value;
  return value + " (" + format(interval->low) + " to " +
         format(interval->high) + ")";
}

std::string Table(const std::vector<TunePoint>& points, size_t n_windows) {
  std::string out =
      "<div class=\"scroll\"><table>\n<thead><tr><th>settings</th>"
      "<th>budget</th><th>memory</th><th>of full</th><th>at most</th>"
      "<th>top-1 (95 %)</th><th>KL (95 %)</th><th>n</th></tr></thead>\n"
      "<tbody>\n";
  for (const TunePoint& point : points) {
    const TuningMeans& means = point.means;
    out += point.is_best        ? "<tr class=\"is-best\">"
           : point.is_dominated ? "<tr class=\"is-dominated\">"
                                : "<tr>";
    for (const std::string& cell :
         {point.settings,
          FormatBudget(
              {.kind = Budget::Kind::kShare, .share = point.candidate.share}),
          MemoryText(means),
          FormatPercent(means.resident_bytes / means.full_bytes),
          FormatBytes(means.resident_bytes_max),
          WithRange(FormatPercent(means.agreement), point.agreement_ci95,
                    [](double share) { return FormatFixed(share * 100, 1); }),
          WithRange(FormatSignificant(means.kl), point.kl_ci95,
                    FormatSignificant),
          FormatCount(n_windows)}) {
      out += "<td>" + Escaped(cell) + "</td>";
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string Paragraph(const char* style, const std::string& text) {
  return "<p class=\"" + std::string(style) + "\">" + Escaped(text) + "</p>\n";
}

}  // namespace

std::string TunePage(const TuneReport& report) {
  const Quantity agreement = {
      .id = "agreement",
      .title = "Agreement with the full cache (top-1) against memory",
      .is_logarithmic = false,
      .value = [](const TunePoint& point) { return point.means.agreement; },
      .ci95 = [](const TunePoint& point) -> const std::optional<Interval>& {
        return point.agreement_ci95;
      },
      .format =
          [](double share) { return FormatSignificant(share * 100) + " %"; }};
  const Quantity kl = {
      .id = "kl",
      .title =
          "Distance from the full cache's predictions (KL, nats a token) "
          "against memory",
      .is_logarithmic = true,
      .value = [](const TunePoint& point) { return point.means.kl; },
      .ci95 = [](const TunePoint& point) -> const std::optional<Interval>& {
        return point.kl_ci95;
      },
      .format = FormatSignificant};
  const std::vector<TunePoint> points = PointsOf(report);
  const bool has_challenger =
      std::any_of(points.begin(), points.end(),
                  [](const TunePoint& point) { return !point.is_default; });
  const size_t n_windows = report.result.windows.size();
  std::string out(kHead);
  out += "<h1>" + Escaped("What suits these texts: " + GoalText(report)) +
         "</h1>\n";
  out += Paragraph("result",
                   (report.result.is_reached ? "Best: "
                                             : "Not "
                                               "reached; the nearest: ") +
                       BestText(report) + ".");
  out += Paragraph("quiet", DuelText(report));
  out +=
      Paragraph("quiet", WindowsText(report) + ". " + EffortText(report) + ".");
  out += "<div class=\"charts\">\n" + Chart(report, points, agreement) +
         Chart(report, points, kl) + "</div>\n";
  out += Paragraph(
      "quiet",
      std::string("Discs: the defaults") +
          (has_challenger ? ", diamonds: the challenger" : "") +
          ". Ring: the best. Dashes: the goal. Upright lines: 95\u00a0% "
          "intervals over " +
          FormatCount(n_windows, "window") + ".");
  out += "<h2>The same in figures</h2>\n" + Table(points, n_windows);
  out += Paragraph("quiet", "Grey rows: another has less memory and less KL.");
  if (report.result.is_reached) {
    out += "<h2>Configuration</h2>\n<pre>" + Escaped(TuneAsConfig(report)) +
           "</pre>\n";
  }
  return out + "</body>\n</html>\n";
}

}  // namespace lkv::cli
