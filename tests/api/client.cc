// The library from C++: the header alone is included, and everything that it declares can be linked.
#include <amptrain.h>

#include <cstdio>
#include <memory>
#include <vector>

int main(int argc, char **argv)
{
    amptrain *opened = nullptr;
    amptrain_error error{};
    if (argc < 3 || amptrain_open(argv[1], "cpu", 0, &opened, &error) != AMPTRAIN_OK) {
        std::fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    std::unique_ptr<amptrain, decltype(&amptrain_close)> network(opened, amptrain_close);
    std::vector<amptrain_image> images;
    for (int i = 2; i < argc; i++) {
        amptrain_image image{};
        image.size = sizeof image;
        image.file = argv[i];
        images.push_back(image);
    }
    std::vector<amptrain_class> best(images.size());
    int status = amptrain_classify(network.get(), images.data(), images.size(), 1, best.data(), nullptr,
                                   &error);
    if (status != AMPTRAIN_OK) std::fprintf(stderr, "%s\n", error.text);
    for (std::size_t i = 0; status == AMPTRAIN_OK && i < best.size(); i++)
        std::printf("%s: %s %.4f\n", images[i].file, amptrain_class_name(network.get(), best[i].index),
                    static_cast<double>(best[i].probability));
    return status;
}
