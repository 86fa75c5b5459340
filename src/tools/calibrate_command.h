// `piper calibrate`: fits a cluster to measured steps.
#pragma once

#include <string>

namespace piper {

struct CalibrateCommand {
  std::string steps;    // the table
  std::string cluster;  // where the fit begins
  std::string out;      // file to write
  int folds = 0;        // of a cross-validation; 0: none
  bool check = false;   // only say how far the cluster is from the measurements
  std::string format = "text";
  bool color = false;
};
int run(const CalibrateCommand& command);

}  // namespace piper
